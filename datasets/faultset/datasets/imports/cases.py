"""Import foreign cases as episodes or recordings, in parallel; a failing case does not affect the others."""

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
from faultset.datasets.cache import cache_frame, frame_facts
from faultset.datasets.format.context import IMPORTED, EpisodeContext
from faultset.datasets.format.episodes import EpisodeWriter, table_file
from faultset.datasets.format.labels import evidence_table
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.version_files import FileSummary
from faultset.datasets.format.versions import EpisodeSummary, summarize_episode
from faultset.datasets.imports.contract import (
    Case,
    ForeignEpisode,
    ForeignRecording,
    ImportFormat,
    input_evidence,
)
from faultset.datasets.imports.recordings import import_recording
from faultset.datasets.imports.registry import load_format, reading
from faultset.datasets.imports.spans import normalise_id_columns
from faultset.datasets.imports.windows import EMPTY_VIEW
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.validation import check_name, find_label_problems, written_rows_problems

if TYPE_CHECKING:
    import pandas as pd


def episode_id(name: str, key: str) -> str:
    """Return the opaque id of a case's episode or recording, the same in every import."""
    return hashlib.sha256(f"{name}\0{key}".encode()).hexdigest()[:12]


def import_case(importer: ImportFormat, case: Case, out: Path) -> FileSummary:
    """Write a case as an episode or a recording."""
    identity = episode_id(importer.name, case.key)
    foreign = importer.load(case)
    if isinstance(foreign, ForeignRecording):
        inputs = input_evidence(case, foreign, importer.name)
        return import_recording(foreign, out, recording=identity, key=case.key, evidence=inputs)
    return _import_episode(importer, case, foreign, out, identity)


def _import_episode(
    importer: ImportFormat, case: Case, foreign: ForeignEpisode, out: Path, episode: str
) -> EpisodeSummary:
    context = _build_context(episode, foreign)
    try:
        label = _build_label(foreign)
    except DataError as error:
        raise DataError(f"{case.key}: {error}") from error
    metrics = TABLES["metrics"].empty_table()
    written = 0
    with EpisodeWriter(out, episode, quick=True) as writer:
        for table, batches in foreign.tables.items():
            rows = writer.write_table(table, normalise_id_columns(batches()))
            for problem in written_rows_problems(rows, table, context):
                raise _invalid_case(case, f"{table_file(table)}: {problem}")
            written += len(rows)
            if table == "metrics":
                metrics = rows
        if not written:
            raise DataError(f"{case.key}: {EMPTY_VIEW}; leave the case out")
        writer.write_context(context)
        writer.write_truth(label, [*foreign.evidence, *input_evidence(case, foreign, importer.name)], None)
        writer.write_missing_tables()
        summary = _summarize(case, writer, context)
        folder = writer.commit()
    # Most methods read this frame first, and its samples are in memory now.
    cache_frame(folder, frame_facts(context, context.resolution_s, None), lambda: _default_frame(metrics, context))
    return replace(summary, check_name=check_name(summary.files))


def _summarize(case: Case, writer: EpisodeWriter, context: EpisodeContext) -> EpisodeSummary:
    """Return the summary of an episode; raise DataError if its files, which have foreign names, break our format."""
    folder = writer.folder
    try:
        summary = summarize_episode(folder, writer.rows)
        catalogue_with(context.metric_roles)
        evidence_table(folder)
    except DataError as error:
        raise _invalid_case(case, str(error).removeprefix(f"{folder}/")) from error
    for problem in find_label_problems(context, summary.label):
        raise _invalid_case(case, f"{table_file('label')}: {problem}; restore the file")
    return summary


def _invalid_case(case: Case, reason: str) -> DataError:
    return DataError(f"{case.key} cannot become an episode: {reason}")


def _default_frame(metrics: pa.Table, context: EpisodeContext) -> pd.DataFrame:
    from faultset.datasets.metrics.frames import wide_frame

    window = context.view_start_ns, context.view_end_ns
    return wide_frame(metrics, *window, context.resolution_s, catalogue=catalogue_with(context.metric_roles))


def _build_context(episode: str, foreign: ForeignEpisode) -> EpisodeContext:
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


def _build_label(foreign: ForeignEpisode) -> dict[str, Any]:
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
        raise DataError("its label has a fault, which needs a target; restore the label or leave the case out")
    windows = {
        "view_start": foreign.view_start_ns,
        "view_end": foreign.view_end_ns,
        "reference_end": foreign.reference_end_ns,
    }
    return defaults | dict(foreign.label) | windows


Outcome = str | FileSummary
"""Summary of the episode or recording, or the reason why the case could not be imported."""


@dataclass(frozen=True, kw_only=True)
class ImportedCase:
    """Outcome and duration of a case."""

    case: Case
    outcome: Outcome
    seconds: float = 0.0
    was_first: bool = False
    """Whether it was the first case of its process; if so, `seconds` includes loading libraries."""


_WATCH_S = 1.0
_KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 28), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""Settings of glibc that keep freed memory for the next case, which has a similar size."""


def worker_count(cases: int, workers: int | None) -> int:
    """Return the number of cases to import at once."""
    return max(1, min(workers or len(os.sched_getaffinity(0)), cases))


def import_cases(name: str, cases: Sequence[Case], out: Path, workers: int | None) -> Iterator[ImportedCase]:
    """Import cases and yield each when it is finished or has failed.

    Parameters
    ----------
    name
        Name of the format.
    cases
        Cases to import.
    out
        Dataset folder.
    workers
        Processes; one per processor by default.
    """
    count = worker_count(len(cases), workers)
    if count == 1:
        importer = load_format(name)
        for number, case in enumerate(cases):
            yield _import_timed(importer, case, out, was_first=number == 0)
        return
    remaining = {case.key: case for case in cases}
    for imported in _import_in_pool(name, cases, out, count):
        del remaining[imported.case.key]
        yield imported
    # If a process was killed, import the remaining cases one at a time to find the one responsible.
    for case in remaining.values():
        reason = f"{case.key}: the process that read it was killed (out of memory?)"
        yield next(_import_in_pool(name, [case], out, 1), ImportedCase(case=case, outcome=reason))


def _import_in_pool(name: str, cases: Sequence[Case], out: Path, count: int) -> Iterator[ImportedCase]:
    """Yield finished cases; end early if a process was killed."""
    # Libraries with threads do not survive a fork.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_die_with_parent) as pool:
        try:
            with _environment(_KEEP_FREED_MEMORY):
                running: list[Future[ImportedCase]] = [pool.submit(_import_named, name, case, out) for case in cases]
            for future in as_completed(running):
                yield future.result()
        except BrokenProcessPool:
            pool.shutdown(wait=True, cancel_futures=True)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def try_import(importer: ImportFormat, case: Case, out: Path) -> Outcome:
    """Write a case as an episode or recording; return the reason if it cannot be read.

    Raises
    ------
    DiskFullError
        The disk of the dataset is full.
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
    return load_format(name)


def _import_named(name: str, case: Case, out: Path) -> ImportedCase:
    """Import a case in a process of the pool, which loads the format once."""
    was_first = _cached_format.cache_info().currsize == 0
    return _import_timed(_cached_format(name), case, out, was_first=was_first)


def _import_timed(importer: ImportFormat, case: Case, out: Path, *, was_first: bool) -> ImportedCase:
    started = time.monotonic()
    outcome = try_import(importer, case, out)
    return ImportedCase(case=case, outcome=outcome, seconds=time.monotonic() - started, was_first=was_first)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, unless they are set already."""
    new = {name: text for name, text in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _die_with_parent() -> None:
    """End this process when its parent ends; a pool would outlive a killed parent."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
