"""Starting the guard of a runner process, with pipes to the fork server below it."""

from __future__ import annotations

import os
import subprocess
from multiprocessing.connection import Connection
from typing import NamedTuple

from faultset.core.processes import import_path, python_command

MARK = "FAULTSET_RUNNER"
"""Environment variable by which processes are found whose guard was killed."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class StartedGuard(NamedTuple):
    """A guard and the ends of its pipes that belong to the evaluation."""

    process: subprocess.Popen[bytes]
    requests: Connection
    replies: Connection


def start_guard(mark: str) -> StartedGuard:
    """Start a guard in a session of its own, whose standard output is what methods print."""
    child_requests, requests = os.pipe()
    replies, child_replies = os.pipe()
    module = "faultset.evaluators.execution.runners.process_guard"
    try:
        process = subprocess.Popen(
            python_command("-m", module, str(child_requests), str(child_replies)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(child_requests, child_replies),
            start_new_session=True,
            env=_environment() | {MARK: mark},
        )
    finally:
        os.close(child_requests)
        os.close(child_replies)
    return StartedGuard(process, Connection(requests, readable=False), Connection(replies, writable=False))


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment |= dict.fromkeys(_ONE_THREAD, "1")
    # the order of sets must not differ between two runs of one evaluation
    environment["PYTHONHASHSEED"] = "0"
    environment["PYTHONPATH"] = import_path()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment
