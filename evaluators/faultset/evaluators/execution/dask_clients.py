"""Clients of dask: a cluster inside this process, or the workers of a scheduler that runs already."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from faultset.core.errors import PlatformError, UsageError
from faultset.core.scratch import scratch
from faultset.evaluators.execution.remote_episodes import forget_fetched
from faultset.evaluators.execution.runners.confinement import NOT_ISOLATED, isolation
from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_TIMEOUT_S = 10
_WORKER_TIMEOUT_S = 60
_ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^\s/:]+:\d+|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d+")
_NOWHERE = "127.0.0.1:0"


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


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
    with _quiet(), scratch("dask") as folder, config.set(options | {"temporary-directory": folder}):
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
    from distributed import Client

    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f'"{address}" is not the address of a dask scheduler; give protocol, host and port, for instance '
            "tcp://10.0.0.5:8786"
        )
    _check_certificates(address)
    with _quiet():
        try:
            client = Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise PlatformError(
                f"no dask scheduler answers at {address} within {_CONNECT_TIMEOUT_S} s; "
                'start one with "dask scheduler", or leave --scheduler out'
            ) from error
        except TypeError as error:
            # dask says so of a protocol whose package is missing
            raise PlatformError(
                f"dask cannot speak {address.partition(':')[0]} here ({str(error)[:100]}); install what it needs for "
                "that, or use tcp:// or tls://"
            ) from error
        try:
            _check_workers(client, address, folder)
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.run(_leave)
            client.close(timeout=5)


def _check_certificates(address: str) -> None:
    """Refuse an encrypted address where dask's configuration has no certificates that can be read."""
    import ssl

    from distributed.security import Security

    if not address.startswith(("tls://", "wss://")):
        return
    wanted = "set distributed.comm.tls in dask's configuration: ca-file, client.cert and client.key"
    try:
        found = Security().get_connection_args("client").get("ssl_context")
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UsageError(f"the certificates for {address} cannot be read ({error}); {wanted}") from error
    if found is None:
        raise UsageError(f"{address} needs certificates, and dask has none; {wanted}")


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


def _check_workers(client: Client, address: str, folder: str | None) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKER_TIMEOUT_S)
    except TimeoutError as error:
        raise PlatformError(
            f"the dask scheduler at {address} has no workers after {_WORKER_TIMEOUT_S} s; "
            f'start some with "dask worker {address}"'
        ) from error
    try:
        client.run(_has_faultset)
        seen: Any = client.run(os.path.isdir, folder) if folder is not None else {}
    except ImportError as error:
        raise PlatformError(
            f"a dask worker of {address} cannot import faultset ({error}); install the same release there"
        ) from error
    blind = sorted(worker for worker, there in seen.items() if not there)
    if blind:
        raise PlatformError(
            f"{len(blind)} of {len(seen)} dask workers do not see {folder} (first: {blind[0]}); "
            "put the dataset on storage that all of them share"
        )


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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep dask's remarks about closed connections away from people who press Ctrl-C."""
    names = ("distributed", "distributed.worker", "distributed.scheduler", "distributed.core", "tornado.application")
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
