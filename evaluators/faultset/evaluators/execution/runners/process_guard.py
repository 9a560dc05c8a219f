"""The runner process: a guard that outlives every baseline, and below it the fork server that starts them.

The guard imports nothing heavy and never runs foreign code. It adopts orphans and ends everything below it
when the fork server ends or when the evaluation goes away, which it learns from its standard input being
closed. So nothing is left behind even if the evaluation is killed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from typing import NoReturn

from faultset.core.processes import adopt_orphans, die_with_parent, make_scratch
from faultset.evaluators.execution.runners import process_trees


def main() -> NoReturn:
    """Start with two inherited pipes, whose descriptors are given as arguments: requests in, replies out."""
    requests, replies = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    guard = os.getpid()
    scratch = str(make_scratch("methods"))
    server = os.fork()
    if server == 0:
        die_with_parent(guard)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        from faultset.evaluators.execution.runners.fork_server import serve_forks

        serve_forks(requests, replies, scratch)
        os._exit(0)
    os.close(requests)
    os.close(replies)
    # the guard must not keep the output pipe open: the evaluation reads its end from it
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    code = _watch(server)
    process_trees.kill_descendants(guard)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(code)


def _watch(server: int) -> int:
    handle = os.pidfd_open(server)
    while True:
        ready, _, _ = select.select([handle, 0], [], [])
        if handle in ready:
            _, status = os.waitpid(server, 0)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if not os.read(0, 1):
            return 0


if __name__ == "__main__":
    main()
