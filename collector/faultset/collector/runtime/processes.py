"""Background processes that a command starts in its container, which end after a time or when stopped."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ShouldContinue = Callable[[], bool]
"""Function that returns whether the work should continue."""


def begin_work(body: Callable[[ShouldContinue], None], *, workers: int, seconds: float, pid_file: Path) -> None:
    """Start background processes, which end after `seconds`, and return at once.

    `body` must frequently check whether to continue. The pid file records the processes for `end_work`.
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


def main(argv: Sequence[str] | None = None) -> int:
    """Start or stop busy loops; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-work", description="Keep processors busy.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cpu = verbs.add_parser("cpu", help="start busy loops in the background and return")
    cpu.add_argument("--workers", type=int, default=1)
    cpu.add_argument("--seconds", type=float, required=True, help="time after which the loops end")
    cpu.add_argument("--pid-file", type=Path, required=True)
    stop = verbs.add_parser("stop", help="end the processes listed in the pid file")
    stop.add_argument("--pid-file", type=Path, required=True)
    arguments = parser.parse_args(argv)
    if arguments.verb == "stop":
        end_work(arguments.pid_file)
        return 0
    if arguments.workers < 1 or arguments.seconds <= 0:
        print("Error: --workers must be at least 1 and --seconds above zero", file=sys.stderr)
        return 2
    begin_work(_loop, workers=arguments.workers, seconds=arguments.seconds, pid_file=arguments.pid_file)
    return 0


def _loop(should_continue: ShouldContinue) -> None:
    while should_continue():
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    sys.exit(main())
