"""Foreign cases as episodes: one case, or many in processes that may fail without harm to the others."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.errors import DataError, DiskFullError
from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter, table_file
from faultset.datasets.format.labels import evidence_table
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.versions import EpisodeSummary, summarize_episode
from faultset.datasets.imports.contract import Case, ForeignEpisode, ImportFormat, input_evidence
from faultset.datasets.imports.registry import format_named, reading
from faultset.datasets.imports.spans import with_normalised_ids
from faultset.datasets.imports.windows import EMPTY_VIEW
from faultset.datasets.metrics.frame_cache import frame_facts, keep_frame
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.validation import checked_for, label_problems, written_rows_problems

if TYPE_CHECKING:
    import pandas as pd


def episode_id(name: str, key: str) -> str:
    """Return the opaque id of a case: the same in every import of it."""
    return hashlib.sha256(f"{name}\0{key}".encode()).hexdigest()[:12]


def import_case(found: ImportFormat, case: Case, out: Path) -> EpisodeSummary:
    """Write one case as an episode."""
    episode = episode_id(found.name, case.key)
    foreign = found.load(case)
    context = _context(episode, foreign)
    try:
        label = _label(foreign)
    except DataError as error:
        raise DataError(f"{case.key}: {error}") from error
    metrics = TABLES["metrics"].empty_table()
    written = 0
    with EpisodeWriter(out, episode, quick=True) as writer:
        for table, batches in foreign.tables.items():
            rows = writer.write_table(table, with_normalised_ids(batches()))
            for problem in written_rows_problems(rows, table, context):
                raise _unsound(case, f"{table_file(table)}: {problem}")
            written += len(rows)
            if table == "metrics":
                metrics = rows
        if not written:
            raise DataError(f"{case.key}: {EMPTY_VIEW}; leave the case out")
        writer.write_context(context)
        writer.write_truth(label, [*foreign.evidence, *input_evidence(case, foreign, found.name)], None)
        writer.write_missing_tables()
        summary = _sound_summary(case, writer, context)
        folder = writer.commit()
    # Methods ask for this frame first, and here its samples are at hand.
    keep_frame(folder, frame_facts(context, context.resolution_s, None), lambda: _usual_frame(metrics, context))
    return replace(summary, checked_for=checked_for(summary.files))


def _sound_summary(case: Case, writer: EpisodeWriter, context: EpisodeContext) -> EpisodeSummary:
    """Read context and truth as a dataset is read: names that came from the data may be what no dataset may hold."""
    folder = writer.folder
    try:
        summary = summarize_episode(folder, writer.rows)
        catalogue_with(context.metric_roles)
        evidence_table(folder)
    except DataError as error:
        raise _unsound(case, str(error).removeprefix(f"{folder}/")) from error
    for problem in label_problems(context, summary.label):
        raise _unsound(case, f"{table_file('label')}: {problem}; restore the file")
    return summary


def _unsound(case: Case, reason: str) -> DataError:
    return DataError(f"{case.key} cannot become an episode: {reason}")


def _usual_frame(metrics: pa.Table, context: EpisodeContext) -> pd.DataFrame:
    from faultset.datasets.metrics.frames import wide_frame

    window = context.view_start_ns, context.view_end_ns
    return wide_frame(metrics, *window, context.resolution_s, catalogue=catalogue_with(context.metric_roles))


def _context(episode: str, foreign: ForeignEpisode) -> EpisodeContext:
    return EpisodeContext(
        episode=episode,
        app=foreign.app,
        platform=IMPORTED,
        view_start_ns=foreign.view_start_ns,
        view_end_ns=foreign.view_end_ns,
        reference_end_ns=foreign.reference_end_ns,
        source_intervals_s=dict.fromkeys(TABLES) | dict(foreign.source_intervals_s),
        services=foreign.services,
        calls=foreign.calls,
        workload_entry=foreign.workload_entry,
        metric_roles=foreign.metric_roles,
        reference_moved_ns=foreign.reference_moved_ns,
    )


def _label(foreign: ForeignEpisode) -> dict[str, Any]:
    faulty = foreign.label.get("fault") is not None
    defaults: dict[str, Any] = {
        "targets": [],
        "root_causes": [],
        "verdict": "unknown" if faulty else "none",
        "no_fault_kind": None if faulty else "plain",
        "profile": IMPORTED,
        "seed": 0,
        "parameters": {},
        "workload": {},
        "host": {},
        "clock_offsets": {},
    }
    if faulty and not foreign.label.get("targets"):
        raise DataError("its label has a fault and names no target; restore the label, or leave the case out")
    windows = {
        "view_start": foreign.view_start_ns,
        "view_end": foreign.view_end_ns,
        "reference_end": foreign.reference_end_ns,
    }
    return defaults | dict(foreign.label) | windows


Outcome = str | EpisodeSummary
"""Summary of the episode, or why the case could not be imported."""


@dataclass(frozen=True, kw_only=True)
class ImportedCase:
    """What became of a case, and how long it took."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    was_first: bool = False
    """Whether its process had imported none before: libraries were loaded in its time."""


_WATCH_S = 1.0
_KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""For glibc: cases are of one size, and memory that is given back is asked for again by the next one."""


def worker_count(cases: int, workers: int | None) -> int:
    """Return how many cases are imported at once."""
    return max(1, min(workers or len(os.sched_getaffinity(0)), cases))


def imported_cases(name: str, cases: Sequence[Case], out: Path, workers: int | None) -> Iterator[ImportedCase]:
    """Yield each case when it is done, with the reason where it could not be imported.

    Parameters
    ----------
    name
        Name of the format.
    cases
        What to import.
    out
        Dataset folder.
    workers
        Processes; as many as there are processors by default.
    """
    count = worker_count(len(cases), workers)
    if count == 1:
        importer = format_named(name)
        for number, case in enumerate(cases):
            yield _import_timed(importer, case, out, was_first=number == 0)
        return
    left = {case.key: case for case in cases}
    for imported in _in_pool(name, cases, out, count):
        del left[imported.case.key]
        yield imported
    # A process was killed: the others' cases one at a time, so that it is known which one does it.
    for case in left.values():
        reason = f"{case.key}: the process that read it was killed (out of memory?)"
        yield next(_in_pool(name, [case], out, 1), ImportedCase(case=case, outcome=reason))


def _in_pool(name: str, cases: Sequence[Case], out: Path, count: int) -> Iterator[ImportedCase]:
    """Yield what was done; end early when a process was killed."""
    # Spawned, not forked: libraries with threads of their own do not survive a fork.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_die_with_parent) as pool:
        try:
            with _environment(_KEEP_FREED_MEMORY):
                running: list[Future[ImportedCase]] = [pool.submit(_of_format, name, case, out) for case in cases]
            for future in as_completed(running):
                yield future.result()
        except BrokenProcessPool:
            pool.shutdown(wait=True, cancel_futures=True)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def import_or_say_why(importer: ImportFormat, case: Case, out: Path) -> Outcome:
    """Write one case as an episode; return the reason if the case cannot be read.

    Raises
    ------
    DiskFullError
        No space is left on the disk of the dataset.
    """
    try:
        with reading(importer, case.key):
            return import_case(importer, case, out)
    except DiskFullError:
        raise
    except DataError as error:
        return str(error)


@functools.cache
def _cached_format(name: str) -> ImportFormat:
    return format_named(name)


def _of_format(name: str, case: Case, out: Path) -> ImportedCase:
    """Import a case in a process of the pool, which looks for its format once."""
    was_first = _cached_format.cache_info().currsize == 0
    return _import_timed(_cached_format(name), case, out, was_first=was_first)


def _import_timed(importer: ImportFormat, case: Case, out: Path, *, was_first: bool) -> ImportedCase:
    started = time.monotonic()
    outcome = import_or_say_why(importer, case, out)
    return ImportedCase(case=case, outcome=outcome, seconds=time.monotonic() - started, was_first=was_first)


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Give processes that are started within the block more variables; what is set already stays."""
    new = {name: text for name, text in added.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _die_with_parent() -> None:
    """End this process when the import is gone: a pool whose owner was killed would wait for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
