"""Background processes that a command starts in its container, which end after a time or when stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

ShouldContinue = Callable[[], bool]
"""Function that returns whether the work should continue."""


def begin_work(body: Callable[[ShouldContinue], None], *, workers: int, seconds: float, pid_file: Path) -> None:
    """Start background processes and return at once.

    Parameters
    ----------
    body
        Work of each process; it must frequently check whether to continue.
    seconds
        Time after which the processes end.
    pid_file
        File that records the processes for `end_work`.
    """
    end = time.monotonic() + seconds
    pids = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            _run_until(body, end)
        pids.append(pid)
    pid_file.write_text("\n".join(f"{pid} {_start_time(pid)}" for pid in pids) + "\n", encoding="ascii")


def end_work(pid_file: Path) -> None:
    """Kill the processes listed in a pid file, if any, and delete the file."""
    for pid in running_work(pid_file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def running_work(pid_file: Path) -> list[int]:
    """Return the processes listed in a pid file that are still running."""
    try:
        lines = pid_file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    recorded = [(int(pid), started) for pid, started in (line.split() for line in lines)]
    return [pid for pid, started in recorded if _start_time(pid) == started != "0"]


def _run_until(body: Callable[[ShouldContinue], None], end: float) -> None:
    """Work until `end`, or until both the parent process and the process that adopted this one have ended."""
    null_device = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null_device, number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parents = [os.getppid()]

    def should_continue() -> bool:
        if os.getppid() != parents[-1]:
            parents.append(os.getppid())
        return time.monotonic() < end and len(parents) < 3

    with contextlib.suppress(Exception):
        body(should_continue)
    os._exit(0)


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks, which identifies it if its pid is reused."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return fields[19]
    return "0"
