"""Work that a command leaves behind in its container: processes that end by themselves, or when they are stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

IsWanted = Callable[[], bool]
"""Says whether the work is to go on."""


def begin_work(body: Callable[[IsWanted], None], *, workers: int, seconds: float, pid_file: Path) -> None:
    """Start processes that do something until they are no longer wanted; return at once.

    Parameters
    ----------
    body
        Does it, and looks often whether it is still wanted.
    seconds
        After which they end by themselves.
    pid_file
        Written with what `end_work` needs to know.
    """
    end = time.monotonic() + seconds
    pids = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            _work(body, end)
        pids.append(pid)
    pid_file.write_text("\n".join(f"{pid} {_started(pid)}" for pid in pids) + "\n", encoding="ascii")


def end_work(pid_file: Path) -> None:
    """End the processes that a pid file names; nothing happens when there are none."""
    for pid in running_work(pid_file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pid_file.unlink(missing_ok=True)


def running_work(pid_file: Path) -> list[int]:
    """Return those of the processes that a pid file names which run."""
    try:
        lines = pid_file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    named = [(int(pid), started) for pid, started in (line.split() for line in lines)]
    return [pid for pid, started in named if _started(pid) == started != "0"]


def _work(body: Callable[[IsWanted], None], end: float) -> None:
    """Work until the end, or until whoever adopted this process is gone too."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parents = [os.getppid()]

    def is_wanted() -> bool:
        if os.getppid() != parents[-1]:
            parents.append(os.getppid())
        return time.monotonic() < end and len(parents) < 3

    with contextlib.suppress(Exception):
        body(is_wanted)
    os._exit(0)


def _started(pid: int) -> str:
    """Start time of a process in clock ticks; a pid that was given to another one has another."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in "ZX":
            return fields[19]
    return "0"
