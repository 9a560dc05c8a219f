"""The runner process: a guard that outlives every baseline, and below it the process that runs them.

The guard imports nothing heavy and never runs foreign code. It adopts orphans and ends everything below it
when the baseline process ends or when the evaluation goes away, which it learns from its standard input being
closed. So nothing is left behind even if the evaluation is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import NoReturn

from faultset.core.processes import adopt_orphans, die_with_parent
from faultset.evaluators.execution.runners import process_trees


def main() -> NoReturn:
    """Start with two inherited pipes, whose descriptors are given as arguments: requests in, replies out."""
    requests, replies = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    guard = os.getpid()
    worker = os.fork()
    if worker == 0:
        die_with_parent(guard)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        from faultset.evaluators.execution.runners.baseline_worker import serve_requests

        serve_requests(requests, replies)
        os._exit(0)
    os.close(requests)
    os.close(replies)
    # the guard must not keep the output pipe open: the evaluation reads its end from it
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    code = _watch(worker)
    process_trees.kill_descendants(guard)
    os._exit(code)


def _watch(worker: int) -> int:
    handle = os.pidfd_open(worker)
    while True:
        ready, _, _ = select.select([handle, 0], [], [])
        if handle in ready:
            _, status = os.waitpid(worker, 0)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if not os.read(0, 1):
            return 0


if __name__ == "__main__":
    main()
