"""`faultset-work cpu|stop`: busy loops in the background, and the end of what runs there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from faultset.collector.runtime.background.processes import IsWanted, begin_work, end_work


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
    if arguments.verb == "stop":
        end_work(arguments.pid_file)
        return 0
    if arguments.workers < 1 or arguments.seconds <= 0:
        print("Error: work needs at least one worker and a length above zero", file=sys.stderr)
        return 2
    begin_work(_loop, workers=arguments.workers, seconds=arguments.seconds, pid_file=arguments.pid_file)
    return 0


def _loop(is_wanted: IsWanted) -> None:
    while is_wanted():
        for _ in range(100_000):
            pass


if __name__ == "__main__":
    sys.exit(main())
