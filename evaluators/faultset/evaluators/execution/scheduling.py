"""Run a plan on dask, in this process or on a scheduler: fits first, then the episodes of each fitted fold."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import resource
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from faultset.core.dask_clients import connect_client, list_connection_errors, silence_dask
from faultset.core.errors import DataError, PlatformError
from faultset.core.printable import count_text
from faultset.core.processes import scratch
from faultset.evaluators.execution.batches import PROGRESS_TOPIC, EpisodeBatch, RunContext, report_progress
from faultset.evaluators.execution.dataset_source import DatasetSource, remove_fetched_episodes
from faultset.evaluators.execution.fits import list_cache_use
from faultset.evaluators.execution.plan import EvaluationPlan
from faultset.evaluators.execution.runners.baseline_worker import NOT_ISOLATED, describe_confinement
from faultset.evaluators.execution.runners.runner_process import close_machine_pool, machine_pool
from faultset.evaluators.results.rows import CompressedRows, ResultRow

if TYPE_CHECKING:
    from distributed import Client, Future

_ANY_LOOPBACK_PORT = "127.0.0.1:0"
_ADDRESS_SPACE_BYTES = 1_900_000_000
_WORKER_ADDRESS_SPACE_BYTES = 300_000_000
"""Measured on the sample: 2.07 GB with one worker, 2.42 GB with two. With less, libraries abort without a message."""


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_address_space(workers: int) -> None:
    """Raise PlatformError if the address space limit (`ulimit -v`) is too low for `workers`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    needed = _ADDRESS_SPACE_BYTES + workers * _WORKER_ADDRESS_SPACE_BYTES
    if resource.RLIM_INFINITY != limit < needed:
        raise PlatformError(
            f"an evaluation with --workers {workers} reserves about {needed / 1e9:.1f} GB of address space, but "
            f"the limit (ulimit -v) is {limit / 1e9:.1f} GB; raise it{', or give fewer workers' if workers > 1 else ''}"
        )


class MethodEngine:
    """Runs methods on dask: on a worker in this process, or on the workers of a scheduler.

    Use it as a context manager. It starts runner processes at once, so that their imports overlap with reading labels,
    and keeps them for several plans.

    Parameters
    ----------
    workers
        Number of methods that run at a time; by default the number of cores, or of threads of the scheduler's workers.
    scheduler
        Address of a dask scheduler; None for this process.
    """

    def __init__(self, workers: int | None = None, scheduler: str | None = None) -> None:
        self.workers = workers or default_workers()
        self._scheduler = scheduler
        self._stack = contextlib.ExitStack()
        self._local: Client | None = None

    def __enter__(self) -> Self:
        if self._scheduler is None:
            check_address_space(self.workers)
            self._stack.callback(close_machine_pool)
            machine_pool().prestart(self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the runner processes; may be called twice."""
        self._local = None
        self._stack.close()

    def connect(self, source: DatasetSource) -> Client:
        """Return a client whose workers can read a dataset."""
        if self._scheduler is None:
            self._local = self._local or self._stack.enter_context(local_client(self.workers))
            return self._local
        client = self._stack.enter_context(remote_client(self._scheduler, None if source.url else str(source.folder)))
        self.workers = count_remote_threads(client)
        return client


@contextlib.contextmanager
def local_client(workers: int) -> Iterator[Client]:
    """Run on this machine with `workers` baselines at a time.

    The dask worker runs in this process; its threads only start and await separate processes, which run the baselines.
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
        # its threads only wait for runners
        "distributed.worker.profile.enabled": False,
        # a worker in this process needs no web pages
        "distributed.worker.http.routes": [],
    }
    # the scheduler reads its folder only from the configuration
    with silence_dask(), scratch("dask") as folder, config.set(options | {"temporary-directory": folder}):
        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            dashboard_address=_ANY_LOOPBACK_PORT,
            worker_dashboard_address=_ANY_LOOPBACK_PORT,
            local_directory=folder,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
        client = Client(cluster, set_as_default=False)
        try:
            yield client
        finally:
            # stop the runners first; the threads that supervise them end only then
            close_machine_pool()
            remove_fetched_episodes()
            # on a busy machine dask needs longer, and its threads end with this process
            with contextlib.suppress(TimeoutError):
                client.close(timeout=5)
                cluster.close(timeout=5)


@contextlib.contextmanager
def remote_client(address: str, folder: str | None) -> Iterator[Client]:
    """Run on the workers of a dask scheduler.

    `folder`: dataset folder, which workers must be able to access under the same path; None if they fetch it from a
    URL.
    """
    with connect_client(address, folder, _import_faultset) as client:
        try:
            yield client
        finally:
            with contextlib.suppress(Exception):
                client.run(_close_worker)


def count_remote_threads(client: Client) -> int:
    """Return the number of threads of all workers."""
    threads: Any = client.nthreads()
    return max(1, sum(threads.values()))


def _close_worker() -> None:
    close_machine_pool()
    remove_fetched_episodes()


def find_dashboard(client: Client) -> str | None:
    """Return the URL of dask's dashboard; None if bokeh is not installed."""
    from importlib.util import find_spec

    if not _is_local(client):
        return str(client.dashboard_link)
    if find_spec("bokeh") is None:
        return None
    # dask reports the machine's address, but a local dashboard listens on loopback only
    return f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}/status"


def _is_local(client: Client) -> bool:
    from distributed import LocalCluster

    return isinstance(client.cluster, LocalCluster)


def describe_isolation(client: Client) -> str:
    """Describe how methods are isolated, on all workers, in a few words."""
    if _is_local(client):
        return describe_confinement()
    by_worker: Any = client.run(describe_confinement)
    not_isolated = sorted(worker for worker, text in by_worker.items() if text.startswith(NOT_ISOLATED))
    if not not_isolated:
        return next(iter(by_worker.values()), describe_confinement())
    first = not_isolated[0]
    return f"{by_worker[first]} ({len(not_isolated)} of {count_text(len(by_worker), 'worker')}, first: {first})"


def _import_faultset() -> str:
    from faultset.evaluators.execution import batches

    return batches.__name__


Progress = Callable[[int], None]
_ANSWERS_PER_TASK = 40
_TASKS_PER_WORKER = 8


def run_plan(
    plan: EvaluationPlan,
    client: Client,
    progress: Progress = lambda _: None,
    keep: Callable[[list[ResultRow]], None] = lambda _: None,
    damaged: Callable[[str, DataError], None] | None = None,
    fitted: Callable[[list[tuple[str, bool]]], None] = lambda _: None,
) -> list[ResultRow]:
    """Run all batches; return all rows, reused ones included, in no particular order.

    `progress`: called with the number of steps finished since the last call, possibly from another thread.
    `keep`: called with the rows of every finished batch.
    `damaged`: called with an episode that cannot be evaluated because its data, or its training data, is damaged.
    `fitted`: called at the end with the baseline of every fit, and whether it came from the cache.
    """
    from distributed import as_completed

    if not plan.batches:
        return list(plan.reused)
    rows = CompressedRows()
    rows.add(plan.reused)
    client.subscribe_topic(PROGRESS_TOPIC, lambda event: progress(event[1]))
    futures: dict[Any, tuple[EpisodeBatch, ...]] = {}
    try:
        key = f"context-{uuid.uuid4().hex[:8]}"
        context = client.submit(copy.copy, plan.context, key=key, pure=False, priority=20)
        fits: dict[tuple[int, int | None], list[Future]] = {}
        for i, fit in enumerate(plan.fits):
            key = f"fit-{fit.fold}-{i}-{context.key}"
            fits.setdefault((fit.fold, fit.inner), []).append(
                client.submit(_run, fit, context, key=key, pure=False, priority=10)
            )
        for i, group in enumerate(group_batches(plan.batches, plan.context, count_remote_threads(client))):
            key = f"episodes-{i}-{context.key}"
            future = client.submit(
                _run_all, group, context, *fits.get((group[0].fold, group[0].inner), ()), key=key, pure=False
            )
            futures[future] = group
        for future in as_completed(list(futures), loop=client.loop):
            try:
                new_rows, damage = future.result()
            except DataError as error:
                new_rows, damage = [], {batch.truth.episode: error for batch in futures[future]}
            keep(new_rows)
            rows.add(new_rows)
            for episode, error in damage.items():
                if damaged is None:
                    raise error
                damaged(episode, error)
            futures.pop(future, None)
            future.release()
        reports = [client.submit(list_cache_use, models, pure=False) for group in fits.values() for models in group]
        gathered: Any = client.gather(reports, errors="skip")
        fitted([fit for report in gathered for fit in report])
        return rows.rows()
    except list_connection_errors() as error:
        raise PlatformError(
            f"{_describe_loss(error)}; {len(rows)} of {plan.answers + len(plan.reused)} answers are stored; "
            "run the same command again to resume"
        ) from error
    finally:
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(PROGRESS_TOPIC)
            client.cancel(list(futures))


def _describe_loss(error: BaseException) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return (
            f"dask workers died {error.allowed_failures + 1} times on the same episode; "
            "check their logs and give them more memory"
        )
    return "the dask scheduler is gone"


def group_batches(batches: Sequence[EpisodeBatch], context: RunContext, workers: int) -> list[tuple[EpisodeBatch, ...]]:
    """Combine small batches, because a dask task costs as much as several cheap answers.

    Consecutive batches of one fold are combined up to `_ANSWERS_PER_TASK` answers. Groups are kept small, so that no
    worker idles for long at the end.
    """
    max_batches = max(1, len(batches) // (_TASKS_PER_WORKER * workers))
    groups: list[tuple[EpisodeBatch, ...]] = []
    answers = 0
    for batch in batches:
        new_answers = batch.count_answers(context)
        last = groups[-1] if groups else ()
        if (
            last
            and (last[0].fold, last[0].inner) == (batch.fold, batch.inner)
            and len(last) < max_batches
            and answers + new_answers <= _ANSWERS_PER_TASK
        ):
            groups[-1] = (*last, batch)
            answers += new_answers
        else:
            groups.append((batch,))
            answers = new_answers
    return groups


def _run_all(batches: Sequence[EpisodeBatch], *inputs: Any) -> tuple[list[ResultRow], dict[str, DataError]]:
    """Return the rows, and the error of each damaged episode."""
    rows: list[ResultRow] = []
    damage: dict[str, DataError] = {}
    folders = tuple(dict.fromkeys(batch.location.folder for batch in batches if not batch.location.remote))
    for batch in batches:
        try:
            rows += batch(*inputs, neighbours=folders)
        except DataError as error:
            damage[batch.truth.episode] = error
    report_progress(0, now=True)
    return rows, damage


def _run(unit: Callable[..., Any], *inputs: Any) -> Any:
    result = unit(*inputs)
    report_progress(0, now=True)
    return result
