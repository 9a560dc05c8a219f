"""Running a plan on dask: fits first, then every episode as soon as its fold is fitted."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from faultset.core.dask_clients import lost_errors
from faultset.core.errors import DataError, PlatformError
from faultset.evaluators.execution.baseline_runs import RunContext
from faultset.evaluators.execution.batches import EpisodeBatch
from faultset.evaluators.execution.dask_clients import remote_workers
from faultset.evaluators.execution.fits import used_again
from faultset.evaluators.execution.plan import EvaluationPlan
from faultset.evaluators.execution.progress import PROGRESS_TOPIC, report_progress
from faultset.evaluators.results.compressed_rows import CompressedRows
from faultset.evaluators.results.rows import ResultRow

if TYPE_CHECKING:
    from distributed import Client, Future

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
