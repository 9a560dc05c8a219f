"""Running a plan on dask: fits first, then every episode as soon as its fold is fitted."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from faultset.core.errors import DataError, PlatformError, UsageError
from faultset.evaluators.execution.baseline_runs import RunContext
from faultset.evaluators.execution.batches import PROGRESS_TOPIC, EpisodeBatch, report_progress
from faultset.evaluators.execution.planning.plan import EvaluationPlan
from faultset.evaluators.execution.remote_episodes import forget_fetched
from faultset.evaluators.execution.runners.confinement import NOT_ISOLATED, isolation
from faultset.evaluators.execution.runners.runner_pool import close_machine_pool, machine_pool
from faultset.evaluators.execution.scratch import scratch
from faultset.evaluators.results.rows import ResultRow

if TYPE_CHECKING:
    from distributed import Client, Future

Progress = Callable[[int], None]
_CONNECT_TIMEOUT_S = 10
_WORKER_TIMEOUT_S = 60
_ANSWERS_PER_TASK = 40
_TASKS_PER_WORKER = 8
_ADDRESS = re.compile(r"((tcp|tls|ucx|ws|wss)://)?[^\s/:]+:\d+|(tcp|tls)://\[[0-9a-fA-F:]+\]:\d+")
_NOWHERE = "127.0.0.1:0"


def default_workers() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


def run_plan(
    plan: EvaluationPlan,
    client: Client,
    progress: Progress = lambda _: None,
    keep: Callable[[list[ResultRow]], None] = lambda _: None,
    damaged: Callable[[str, DataError], None] | None = None,
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

    Raises
    ------
    DataError
        Data is damaged, and there is no `damaged`.
    PlatformError
        When the scheduler is lost, or workers end again and again; what was kept until then stays kept.
    """
    from distributed import as_completed

    rows = list(plan.kept)
    if not plan.batches:
        return rows
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
            rows += found
            for episode, error in damage.items():
                if damaged is None:
                    raise error
                damaged(episode, error)
            futures.pop(done, None)
            done.release()
        return rows
    except _lost_errors() as error:
        raise PlatformError(
            f"{_loss(error)}; {len(rows)} of {plan.answers + len(plan.kept)} answers are kept, "
            "run the same command again to go on"
        ) from error
    finally:
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(PROGRESS_TOPIC)
            client.cancel(list(futures))


def _lost_errors() -> tuple[type[BaseException], ...]:
    import asyncio
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return asyncio.CancelledError, CancelledError, KilledWorker, CommClosedError, TimeoutError


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
    for batch in batches:
        try:
            rows += batch(*given)
        except DataError as error:
            damage[batch.truth.episode] = error
    report_progress(0, now=True)
    return rows, damage


def _run(unit: Callable[..., Any], *given: Any) -> Any:
    made = unit(*given)
    report_progress(0, now=True)
    return made


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
    with _quiet(), config.set(options), scratch("dask") as folder:
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
