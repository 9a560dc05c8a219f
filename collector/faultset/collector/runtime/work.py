"""`faultset-work cpu|stop`: busy loops in the background, and their end."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Start or stop work; return the exit code."""
    parser = argparse.ArgumentParser(prog="faultset-work", description="Keep processors busy.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    cpu = verbs.add_parser("cpu", help="start busy loops in the background and return")
    cpu.add_argument("--workers", type=int, default=1)
    cpu.add_argument("--seconds", type=float, required=True, help="after which they end by themselves")
    cpu.add_argument("--pid-file", type=Path, required=True)
    stop = verbs.add_parser("stop", help="end what the pid file names")
    stop.add_argument("--pid-file", type=Path, required=True)
    arguments = parser.parse_args(argv)
    if arguments.verb == "cpu":
        return _start(arguments.workers, arguments.seconds, arguments.pid_file)
    return _stop(arguments.pid_file)


def _start(workers: int, seconds: float, pid_file: Path) -> int:
    if workers < 1 or seconds <= 0:
        print("Error: work needs at least one worker and a length above zero", file=sys.stderr)
        return 2
    end = time.monotonic() + seconds
    pids = []
    for _ in range(workers):
        pid = os.fork()
        if pid == 0:
            _loop(end)
        pids.append(pid)
    pid_file.write_text("\n".join(f"{pid} {_started(pid)}" for pid in pids) + "\n", encoding="ascii")
    return 0


def _loop(end: float) -> None:
    """Be busy until the end, or until whoever adopted this process is gone too."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parents = [os.getppid()]
    while time.monotonic() < end and len(parents) < 3:
        if os.getppid() != parents[-1]:
            parents.append(os.getppid())
        for _ in range(100_000):
            pass
    os._exit(0)


def _started(pid: int) -> str:
    """Start time of a process in clock ticks; a pid that was given to another one has another."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return "0"


def _stop(pid_file: Path) -> int:
    try:
        lines = pid_file.read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0
    for line in lines:
        pid, started = line.split()
        if _started(int(pid)) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    pid_file.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
