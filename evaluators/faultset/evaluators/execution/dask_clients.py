"""Clients of dask: a cluster inside this process, or the workers of a scheduler that runs already."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from faultset.core.dask_clients import connected, quiet
from faultset.core.errors import PlatformError
from faultset.core.processes import scratch
from faultset.evaluators.execution.remote_episodes import forget_fetched
from faultset.evaluators.execution.runners.confinement import NOT_ISOLATED, isolation
from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool

if TYPE_CHECKING:
    from distributed import Client

_NOWHERE = "127.0.0.1:0"
_ADDRESS_SPACE_BYTES = 1_900_000_000
_ADDRESS_SPACE_OF_A_WORKER = 300_000_000
"""What an evaluation of the sample reserved: 2.07 GB with one worker, 2.42 GB with two. A process that gets less is
ended by its libraries without a word."""


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_address_space(workers: int) -> None:
    """Raise PlatformError where a limit (`ulimit -v`) is too low for an evaluation with so many workers."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _ADDRESS_SPACE_BYTES + workers * _ADDRESS_SPACE_OF_A_WORKER
    if resource.RLIM_INFINITY != limit < needed:
        raise PlatformError(
            f"an evaluation with --workers {workers} reserves about {needed / 1e9:.1f} GB of address space, and the "
            f"limit (ulimit -v) is {limit / 1e9:.1f} GB; raise it{', or give fewer workers' if workers > 1 else ''}"
        )


@contextlib.contextmanager
def local_client(workers: int) -> Iterator[Client]:
    """Run on this machine with as many baselines at once as there are workers.

    The dask worker lives in this process: what computes are the runner processes, its threads only watch them.
    """
    from dask import config
    from distributed import Client, LocalCluster

    machine_pool().prestart(workers)
    options = {
        "distributed.worker.memory.terminate": False,
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.work-stealing": False,
        "distributed.admin.low-level-log-length": 0,
        "distributed.admin.tick.interval": "1s",
        # a profile of threads that wait for runners tells nothing
        "distributed.worker.profile.enabled": False,
        # a worker inside this process has nothing of its own to show
        "distributed.worker.http.routes": [],
    }
    # the scheduler takes its folder from the configuration alone
    with quiet(), scratch("dask") as folder, config.set(options | {"temporary-directory": folder}):
        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            dashboard_address=_NOWHERE,
            worker_dashboard_address=_NOWHERE,
            local_directory=folder,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster, set_as_default=False)
        try:
            yield client
        finally:
            # first the runners: threads that watch them can only then come to an end
            close_machine_pool()
            forget_fetched()
            client.close(timeout=5)
            cluster.close(timeout=5)


@contextlib.contextmanager
def remote_client(address: str, folder: str | None) -> Iterator[Client]:
    """Run on the workers of an existing dask scheduler.

    They must see the dataset under the same path; None where they fetch it from a URL.
    """
    with connected(address, folder, _has_faultset) as client:
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.run(_leave)


def remote_workers(client: Client) -> int:
    """Count the threads that the workers of a scheduler offer."""
    threads: Any = client.nthreads()
    return max(1, sum(threads.values()))


def _leave() -> None:
    close_machine_pool()
    forget_fetched()


def dashboard_of(client: Client) -> str | None:
    """Where a browser shows what dask is doing; None where the local scheduler lacks what it needs for its pages."""
    from importlib.util import find_spec

    if not isinstance(client.cluster, _local_cluster()):
        return str(client.dashboard_link)
    if find_spec("bokeh") is None:
        return None
    # dask names the machine's address, but the page of a local evaluation is on loopback only
    return f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}/status"


def _local_cluster() -> type:
    from distributed import LocalCluster

    return LocalCluster


def isolation_of(client: Client) -> str:
    """Say in a few words what keeps methods from everything but their view, of every worker that is there."""
    if isinstance(client.cluster, _local_cluster()):
        return isolation()
    found: Any = client.run(isolation)
    without = sorted(worker for worker, text in found.items() if text.startswith(NOT_ISOLATED))
    if not without:
        return next(iter(found.values()), isolation())
    return f"{found[without[0]]} ({len(without)} of {len(found)} workers, first: {without[0]})"


def _has_faultset() -> str:
    from faultset.evaluators.execution import batches

    return batches.__name__
