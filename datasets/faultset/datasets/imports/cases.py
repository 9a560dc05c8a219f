"""Import foreign cases as episodes or recordings, in parallel; a failing case does not affect the others."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from faultset.core.errors import DataError, DiskFullError
from faultset.core.files import flush
from faultset.core.times import utc_text
from faultset.datasets.format.context import IMPORTED, EpisodeContext, RecordingContext, Sampling
from faultset.datasets.format.episodes import INCOMPLETE, EpisodeWriter, table_file
from faultset.datasets.format.incidents import TRAINING, RecordingSummary, summarize_recording
from faultset.datasets.format.labels import evidence_table
from faultset.datasets.format.recordings import RECORDINGS, RecordingWriter, Rows
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.format.version_files import FileSummary
from faultset.datasets.format.versions import EpisodeSummary, summarize_episode
from faultset.datasets.imports.columns import normalise_id_columns
from faultset.datasets.imports.contract import (
    EMPTY_VIEW,
    Case,
    ForeignChunk,
    ForeignEpisode,
    ForeignRecording,
    ImportFormat,
    build_evidence,
    load_format,
    reading,
)
from faultset.datasets.metrics.frames import cache_frame, frame_facts
from faultset.datasets.metrics.roles import catalogue_with
from faultset.datasets.recordings.validation import recording_problems
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
    inputs = _list_inputs(case, foreign, importer.name)
    if isinstance(foreign, ForeignRecording):
        return _import_recording(foreign, out, identity, case.key, inputs)
    return _import_episode(case, foreign, out, identity, inputs)


def _list_inputs(case: Case, foreign: ForeignEpisode | ForeignRecording, importer: str) -> list[dict[str, Any]]:
    """Return an evidence row for each input file, named relative to the folder of the case."""
    folders = [path if path.is_dir() else path.parent for path in case.paths]
    base = os.path.commonpath(folders) if folders else ""
    names = {Path(os.path.relpath(path, base)).as_posix() for path in foreign.inputs or case.paths}
    return [build_evidence("input", name, f"read by the importer {importer}") for name in sorted(names)]


def _import_episode(
    case: Case, foreign: ForeignEpisode, out: Path, episode: str, inputs: Sequence[Mapping[str, Any]]
) -> EpisodeSummary:
    context = _build_context(episode, foreign)
    label = _build_label(case.key, foreign)
    invalid = f"{case.key} cannot become an episode"
    metrics = TABLES["metrics"].empty_table()
    written = 0
    with EpisodeWriter(out, episode, quick=True) as writer:
        for table, batches in foreign.tables.items():
            rows = writer.write_table(table, normalise_id_columns(batches()))
            for problem in written_rows_problems(rows, table, context):
                raise DataError(f"{invalid}: {table_file(table)}: {problem}")
            written += len(rows)
            if table == "metrics":
                metrics = rows
        if not written:
            raise DataError(f"{case.key}: {EMPTY_VIEW}; leave the case out")
        writer.write_context(context)
        writer.write_truth(label, [*foreign.evidence, *inputs], None)
        writer.write_missing_tables()
        try:
            summary = summarize_episode(writer.folder, writer.rows)
            catalogue_with(context.metric_roles)
            evidence_table(writer.folder)
        except DataError as error:  # names from the source may be invalid in this format
            raise DataError(f"{invalid}: {str(error).removeprefix(f'{writer.folder}/')}") from error
        for problem in find_label_problems(context, summary.label):
            raise DataError(f"{invalid}: {table_file('label')}: {problem}; restore the file")
        folder = writer.commit()
    # Most methods read this frame first, and its samples are in memory now.
    cache_frame(folder, frame_facts(context, context.resolution_s, None), lambda: _default_frame(metrics, context))
    return replace(summary, check_name=check_name(summary.files))


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


def _build_label(key: str, foreign: ForeignEpisode) -> dict[str, Any]:
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
        raise DataError(f"{key}: its label has a fault, which needs a target; restore the label or leave the case out")
    windows = {
        "view_start": foreign.view_start_ns,
        "view_end": foreign.view_end_ns,
        "reference_end": foreign.reference_end_ns,
    }
    return defaults | dict(foreign.label) | windows


@dataclass(frozen=True, kw_only=True)
class ImportedCase:
    """Outcome and duration of a case."""

    case: Case
    outcome: str | FileSummary
    """Summary of the episode or recording, or the reason why the case could not be imported."""
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
    """Import cases of a format and yield each when it is finished or has failed; by default, use every processor."""
    count = worker_count(len(cases), workers)
    if count == 1:
        _cached_format.cache_clear()
        yield from (_import_timed(name, case, out) for case in cases)
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
            with _set_environment(_KEEP_FREED_MEMORY):
                running: list[Future[ImportedCase]] = [pool.submit(_import_timed, name, case, out) for case in cases]
            for future in as_completed(running):
                yield future.result()
        except BaseException as error:
            pool.shutdown(wait=True, cancel_futures=True)
            if not isinstance(error, BrokenProcessPool):
                raise


def try_import(importer: ImportFormat, case: Case, out: Path) -> str | FileSummary:
    """Write a case as an episode or recording; return the reason if it cannot be read."""
    try:
        with reading(importer, case.key):
            return import_case(importer, case, out)
    except DiskFullError:
        raise
    except DataError as error:
        return str(error)


_cached_format = functools.cache(load_format)


def _import_timed(name: str, case: Case, out: Path) -> ImportedCase:
    was_first = _cached_format.cache_info().currsize == 0
    importer = _cached_format(name)
    started = time.monotonic()
    outcome = try_import(importer, case, out)
    return ImportedCase(case=case, outcome=outcome, seconds=time.monotonic() - started, was_first=was_first)


@contextmanager
def _set_environment(variables: Mapping[str, str]) -> Iterator[None]:
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


_INCIDENT_DEFAULTS: Mapping[str, Any] = {
    "system_level": None,
    "fault_type": None,
    "parameters": {},
    "recover_start": None,
    "verdict": "unknown",
    "seed": 0,
}
"""Defaults of fields that most sources lack."""


def _import_recording(
    foreign: ForeignRecording, out: Path, recording: str, key: str, inputs: Sequence[Mapping[str, Any]]
) -> RecordingSummary:
    """Write a recording chunk by chunk; it appears when it is complete."""
    folder = out / RECORDINGS
    root = folder / f"{recording}{INCOMPLETE}"
    shutil.rmtree(root, ignore_errors=True)
    try:
        writer = RecordingWriter(root, _recording_context(foreign, recording))
        rows = _write_chunks(foreign, writer, inputs)
        if not rows:
            raise DataError(f"{key}: {EMPTY_VIEW}; leave the case out")
        for file, _, problem in recording_problems(writer.folder, recording):
            raise DataError(f"{key} cannot become a recording: {file}: {problem}; restore its files")
        writer.folder.rename(folder / recording)
        flush(folder)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return summarize_recording(folder / recording)


def _recording_context(foreign: ForeignRecording, recording: str) -> RecordingContext:
    return RecordingContext(
        recording=recording,
        app=foreign.app,
        platform=IMPORTED,
        source_intervals_s=dict.fromkeys(TABLES) | dict(foreign.source_intervals_s),
        services=foreign.services,
        calls=foreign.calls,
        workload_entry=foreign.workload_entry,
        metric_roles=foreign.metric_roles,
        sampling=Sampling(traces=foreign.trace_share),
    )


def _write_chunks(foreign: ForeignRecording, writer: RecordingWriter, inputs: Sequence[Mapping[str, Any]]) -> int:
    """Write all chunks; return the number of rows of telemetry."""
    recording = writer.context.recording
    incidents = [
        # The opaque id of an incident is the same in every import.
        {**_INCIDENT_DEFAULTS, **row, "incident": hashlib.sha256(f"{recording}\0{number}".encode()).hexdigest()[:12]}
        for number, row in enumerate(foreign.incidents)
    ]
    checks = [*inputs]
    if foreign.training_end_ns is not None:
        detail = "the source intends the time before this for training"
        checks.append(build_evidence(TRAINING, foreign.app, detail, time_ns=foreign.training_end_ns))
    rows = Counter[str]()
    started = set[str]()
    for chunk in foreign.chunks():
        tables = {table: _count_rows(table, batches(), rows) for table, batches in chunk.tables.items()}
        chunk_incidents = list(_incidents_in(chunk, incidents))
        truth: dict[str, Rows] = {
            "incidents": chunk_incidents,
            "evidence": checks,
            "voids": _voids_in(chunk, foreign.voids),
        }
        writer.append(chunk.start_ns, chunk.end_ns, tables, truth=truth)
        started |= {row["incident"] for row in chunk_incidents}
        checks = []
    outside = [row for row in incidents if row["incident"] not in started]
    if outside and rows:
        start = utc_text(outside[0]["inject_start"])
        raise DataError(
            f"an incident must start within the telemetry, but the incident at {start} does not; correct its times, or "
            "leave it out"
        )
    return rows.total()


def _count_rows(
    table: str, batches: Iterable[pa.RecordBatch | pa.Table], rows: Counter[str]
) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield batches with normalised ids and count their rows."""
    for batch in normalise_id_columns(batches):
        rows[table] += batch.num_rows
        yield batch


def _incidents_in(chunk: ForeignChunk, incidents: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the incidents that start or end in a chunk; an incident that outlasts the chunk has no end yet."""
    for row in incidents:
        start_ns, end_ns = row["inject_start"], row["recover_start"]
        if chunk.start_ns <= start_ns < chunk.end_ns:
            outlasts = end_ns is not None and end_ns > chunk.end_ns
            yield {**row, "recover_start": None if outlasts else end_ns}
        elif end_ns is not None and chunk.start_ns < end_ns <= chunk.end_ns:
            yield dict(row)


def _voids_in(chunk: ForeignChunk, voids: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of void times within a chunk."""
    return [
        {**row, "start": max(row["start"], chunk.start_ns), "end": min(row["end"], chunk.end_ns)}
        for row in voids
        if row["start"] < chunk.end_ns and chunk.start_ns < row["end"]
    ]
