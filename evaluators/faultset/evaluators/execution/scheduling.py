"""Running a plan on dask, in this process or on a scheduler: fits first, then episodes whose fold is fitted."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from faultset.core.dask_clients import connected, lost_errors, quiet
from faultset.core.errors import DataError, PlatformError
from faultset.core.processes import scratch
from faultset.evaluators.execution.batches import PROGRESS_TOPIC, EpisodeBatch, RunContext, report_progress
from faultset.evaluators.execution.dataset_source import DatasetSource, forget_fetched
from faultset.evaluators.execution.fits import used_again
from faultset.evaluators.execution.plan import EvaluationPlan
from faultset.evaluators.execution.runners.confinement import NOT_ISOLATED, isolation
from faultset.evaluators.execution.runners.runner_process import close_machine_pool, machine_pool
from faultset.evaluators.results.rows import CompressedRows, ResultRow

if TYPE_CHECKING:
    from distributed import Client, Future

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


class MethodEngine:
    """Runs methods on dask: on a worker in this process, or on those of a scheduler that runs already.

    Use it as a context manager. It starts runner processes at once, so that their imports overlap with reading labels.

    Parameters
    ----------
    workers
        Methods that run at once; the number of cores by default, and of a scheduler what its workers offer.
    scheduler
        Address of a dask scheduler.
    """

    def __init__(self, workers: int | None = None, scheduler: str | None = None) -> None:
        self.workers = workers or default_workers()
        self._scheduler = scheduler
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._scheduler is None:
            check_address_space(self.workers)
            self._stack.callback(close_machine_pool)
            machine_pool().prestart(self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def connect(self, source: DatasetSource) -> Client:
        """Return a client whose workers can read a dataset."""
        if self._scheduler is None:
            return self._stack.enter_context(local_client(self.workers))
        client = self._stack.enter_context(remote_client(self._scheduler, None if source.url else str(source.folder)))
        self.workers = remote_workers(client)
        return client


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
    """Run all batches of work; rows come back in no particular order, those that the plan had kept among them.

    Parameters
    ----------
    progress
        Called with the number of steps that were finished since the last call, possibly from another thread.
    keep
        Called with the rows of every batch as soon as they are there.
    damaged
        Called with an episode that cannot be evaluated because its data, or what a method learns from, is damaged.
    fitted
        Called at the end with the baseline of every fit, and whether an earlier evaluation has made it.

    Raises
    ------
    DataError
        Data is damaged, and there is no `damaged`.
    PlatformError
        When the scheduler is lost, or workers end again and again; what was kept until then stays kept.
    """
    from distributed import as_completed

    if not plan.batches:
        return list(plan.kept)
    rows = CompressedRows()
    rows.add(plan.kept)
    client.subscribe_topic(PROGRESS_TOPIC, lambda event: progress(event[1]))
    futures: dict[Any, tuple[EpisodeBatch, ...]] = {}
    try:
        context = client.submit(_hand_out, plan.context, key=f"context-{uuid.uuid4().hex[:8]}", pure=False, priority=20)
        fits: dict[tuple[int, int | None], list[Future]] = {}
        for i, fit in enumerate(plan.fits):
            key = f"fit-{fit.fold}-{i}-{context.key}"
            fits.setdefault((fit.fold, fit.inner), []).append(
                client.submit(_run, fit, context, key=key, pure=False, priority=10)
            )
        for i, part in enumerate(grouped(plan.batches, plan.context, remote_workers(client))):
            key = f"episodes-{i}-{context.key}"
            future = client.submit(
                _run_all, part, context, *fits.get((part[0].fold, part[0].inner), ()), key=key, pure=False
            )
            futures[future] = part
        for done in as_completed(list(futures), loop=client.loop):
            try:
                found, damage = done.result()
            except DataError as error:
                found, damage = [], {batch.truth.episode: error for batch in futures[done]}
            keep(found)
            rows.add(found)
            for episode, error in damage.items():
                if damaged is None:
                    raise error
                damaged(episode, error)
            futures.pop(done, None)
            done.release()
        made = [client.submit(used_again, models, pure=False) for part in fits.values() for models in part]
        known: Any = client.gather(made, errors="skip")
        fitted([one for found in known for one in found])
        return rows.rows()
    except lost_errors() as error:
        raise PlatformError(
            f"{_loss(error)}; {len(rows)} of {plan.answers + len(plan.kept)} answers are kept, "
            "run the same command again to go on"
        ) from error
    finally:
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(PROGRESS_TOPIC)
            client.cancel(list(futures))


def _loss(error: BaseException) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):
        return (
            f"dask workers ended {error.allowed_failures + 1} times at the same episode; "
            "look at their logs, and give them more memory"
        )
    return "the dask scheduler is gone"


def _hand_out(context: RunContext) -> RunContext:
    return context


def grouped(batches: Sequence[EpisodeBatch], context: RunContext, workers: int) -> list[tuple[EpisodeBatch, ...]]:
    """Put batches of few answers together: a dask task costs as much as several cheap answers.

    Neighbours of one fold are joined up to `_ANSWERS_PER_TASK` answers, and never so many that workers would wait for
    each other at the end.
    """
    most = max(1, len(batches) // (_TASKS_PER_WORKER * workers))
    groups: list[tuple[EpisodeBatch, ...]] = []
    answers = 0
    for batch in batches:
        more = batch.answers(context)
        last = groups[-1] if groups else ()
        if (
            last
            and (last[0].fold, last[0].inner) == (batch.fold, batch.inner)
            and len(last) < most
            and answers + more <= _ANSWERS_PER_TASK
        ):
            groups[-1] = (*last, batch)
            answers += more
        else:
            groups.append((batch,))
            answers = more
    return groups


def _run_all(batches: Sequence[EpisodeBatch], *given: Any) -> tuple[list[ResultRow], dict[str, DataError]]:
    """Return the rows, and why there are none of an episode whose data is damaged."""
    rows: list[ResultRow] = []
    damage: dict[str, DataError] = {}
    folders = tuple(dict.fromkeys(batch.location.folder for batch in batches if not batch.location.remote))
    for batch in batches:
        try:
            rows += batch(*given, neighbours=folders)
        except DataError as error:
            damage[batch.truth.episode] = error
    report_progress(0, now=True)
    return rows, damage


def _run(unit: Callable[..., Any], *given: Any) -> Any:
    made = unit(*given)
    report_progress(0, now=True)
    return made
