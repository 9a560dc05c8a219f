"""CPU time that programs use on purpose, because those they stand for would."""

from __future__ import annotations

import hashlib
import time


class CpuAccount:
    """CPU time of this process that requests have not been charged with yet.

    An operation is meant to take `work_ms`. What the process has used since it last worked on purpose (for reading
    and answering requests, for spans and log lines) is part of that, and only the rest is worked.
    """

    def __init__(self) -> None:
        self._charged_s = time.thread_time()

    def work(self, cpu_ms: float) -> None:
        """Work for what is left of some CPU time in milliseconds."""
        used_s = time.thread_time() - self._charged_s
        use_cpu(cpu_ms - used_s * 1000)
        self._charged_s = time.thread_time()


def use_cpu(cpu_ms: float) -> None:
    """Use CPU time of this thread, however long that takes on a busy or throttled machine; none below 0."""
    if cpu_ms <= 0:
        return
    end = time.thread_time() + cpu_ms / 1000
    block = bytes(512)
    while time.thread_time() < end:
        block = hashlib.sha512(block).digest() * 8
