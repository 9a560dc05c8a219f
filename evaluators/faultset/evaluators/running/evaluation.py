"""Carrying out a plan on dask: fits first, then every episode as soon as its fold is fitted."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from faultset.datasets.errors import PlatformError, UsageError
from faultset.evaluators.rows import ResultRow
from faultset.evaluators.running.planning import Plan
from faultset.evaluators.running.pool import close_machine_pool, machine_pool
from faultset.evaluators.running.tasks import PROGRESS_TOPIC

if TYPE_CHECKING:
    from distributed import Client, Future

Progress = Callable[[int], None]
_CONNECT_PATIENCE_S = 10
_ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^\s/:]+:\d+|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d+")
_NOWHERE = "127.0.0.1:0"


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def carry_out(plan: Plan, client: Client, progress: Progress = lambda _: None) -> list[ResultRow]:
    """Run all units of work; rows come back in no particular order.

    Parameters
    ----------
    progress
        Called with the number of steps that were finished since the last call, possibly from another thread.
    """
    from distributed import as_completed

    client.subscribe_topic(PROGRESS_TOPIC, lambda event: progress(event[1]))
    futures: list[Future] = []
    try:
        fits: dict[int, list[Future]] = {}
        for i, fit in enumerate(plan.fits):
            future = client.submit(_run, fit, key=f"fit-{fit.fold}-{i}", pure=False, priority=10)
            fits.setdefault(fit.fold, []).append(future)
        for i, batch in enumerate(plan.batches):
            key = f"episode-{batch.truth.episode}-{i}"
            futures.append(client.submit(_run, batch, *fits[batch.fold], key=key, pure=False))
        rows: list[ResultRow] = []
        with client.as_current():
            for future in as_completed(futures):
                rows += future.result()
                future.release()
        return rows
    finally:
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(PROGRESS_TOPIC)
            client.cancel(futures)


def _run(unit: Callable[..., Any], *fitted: Any) -> Any:
    return unit(*fitted)


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
        "distributed.admin.low-level-log-length": 0,
        # dask always starts its status servers: on loopback only, and with nothing to show
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with _quiet(), config.set(options), tempfile.TemporaryDirectory(prefix="faultset-dask-") as scratch:
        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            dashboard_address=_NOWHERE,
            worker_dashboard_address=_NOWHERE,
            local_directory=scratch,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster)
        try:
            yield client
        finally:
            # first the runners: threads that watch them can only then come to an end
            close_machine_pool()
            client.close(timeout=5)
            cluster.close(timeout=5)


@contextlib.contextmanager
def remote_client(address: str, folder: str) -> Iterator[Client]:
    """Run on the workers of an existing dask scheduler, which must see the dataset under the same path."""
    from distributed import Client

    if not _ADDRESS.fullmatch(address):
        raise UsageError(
            f'"{address}" is not the address of a dask scheduler; give protocol, host and port, for instance '
            "tcp://10.0.0.5:8786"
        )
    with _quiet():
        try:
            client = Client(address, timeout=_CONNECT_PATIENCE_S, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise PlatformError(
                f"no dask scheduler answers at {address} within {_CONNECT_PATIENCE_S} s; "
                'start one with "dask scheduler", or leave --scheduler out'
            ) from error
        try:
            _check_workers(client, address, folder)
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.run(close_machine_pool)
            client.close(timeout=5)


def remote_workers(client: Client) -> int:
    """Count the threads that the workers of a scheduler offer."""
    threads: Any = client.nthreads()
    return max(1, sum(threads.values()))


def _check_workers(client: Client, address: str, folder: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_CONNECT_PATIENCE_S)
    except TimeoutError as error:
        raise PlatformError(
            f'the dask scheduler at {address} has no workers; start some with "dask worker {address}"'
        ) from error
    try:
        seen: Any = client.run(os.path.isdir, folder)
        client.run(_has_faultset)
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


def _has_faultset() -> str:
    from faultset.evaluators.running import tasks

    return tasks.__name__


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
