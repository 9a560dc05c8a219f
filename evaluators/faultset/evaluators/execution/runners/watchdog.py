"""A limit on the time that short waits may take, by one thread for all waits of an object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LOOKS = 10


class Watchdog:
    """Calls a function when a block under `with` takes longer than it may; the block is told in no other way.

    Blocks follow one another and are as short as a message takes to arrive, so none starts a thread of its own.

    Parameters
    ----------
    limit_s
        Seconds that a block may take; up to a tenth more pass before the function is called.
    act
        Called from another thread, once for a block.
    """

    def __init__(self, limit_s: float, act: Callable[[], None]) -> None:
        self._limit_s, self._act = limit_s, act
        self._due: float | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def __enter__(self) -> None:
        self._due = time.monotonic() + self._limit_s
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._look, name="watchdog", daemon=True)
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._due = None

    def close(self) -> None:
        """Let the thread come to its end; blocks after that have no limit."""
        self._closed.set()

    def _look(self) -> None:
        while not self._closed.wait(self._limit_s / _LOOKS):
            due = self._due
            if due is not None and time.monotonic() > due:
                self._due = None
                self._act()
