"""Write foreign recordings, chunk by chunk; a recording appears when it is complete."""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import flush
from faultset.core.times import utc_text
from faultset.datasets.format.context import IMPORTED, RecordingContext, Sampling
from faultset.datasets.format.episodes import INCOMPLETE
from faultset.datasets.format.incidents import TRAINING, RecordingSummary, summarize_recording
from faultset.datasets.format.recordings import RECORDINGS, RecordingWriter, Rows
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.imports.contract import ForeignChunk, ForeignRecording
from faultset.datasets.imports.spans import normalise_id_columns
from faultset.datasets.imports.windows import EMPTY_VIEW
from faultset.datasets.recordings.validation import recording_problems

_INCIDENT: Mapping[str, Any] = {
    "system_level": None,
    "fault_type": None,
    "parameters": {},
    "recover_start": None,
    "verdict": "unknown",
    "seed": 0,
}
"""Defaults of fields that most sources lack."""


def import_recording(
    foreign: ForeignRecording, out: Path, *, recording: str, key: str, evidence: Sequence[Mapping[str, Any]]
) -> RecordingSummary:
    """Write a foreign recording into a dataset.

    Parameters
    ----------
    foreign
        The recording.
    out
        Dataset folder.
    recording
        Its id.
    key
        Key of its case, for messages.
    evidence
        Rows of the table `evidence`.

    Raises
    ------
    DataError
        The recording is empty or invalid.
    """
    folder = out / RECORDINGS
    root = folder / f"{recording}{INCOMPLETE}"
    shutil.rmtree(root, ignore_errors=True)
    try:
        writer = RecordingWriter(root, _build_context(foreign, recording))
        rows = _write_chunks(foreign, writer, evidence)
        if not rows:
            raise DataError(f"{key}: {EMPTY_VIEW}; leave the case out")
        for file, _, problem in recording_problems(writer.folder, recording):
            raise DataError(f"{key} cannot become a recording: {file}: {problem}; restore its files")
        writer.folder.rename(folder / recording)
        flush(folder)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return summarize_recording(folder / recording)


def _build_context(foreign: ForeignRecording, recording: str) -> RecordingContext:
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


def _write_chunks(foreign: ForeignRecording, writer: RecordingWriter, evidence: Sequence[Mapping[str, Any]]) -> int:
    """Write all chunks; return the number of rows of telemetry."""
    recording = writer.context.recording
    incidents = [
        {**_INCIDENT, **row, "incident": _incident_id(recording, number)}
        for number, row in enumerate(foreign.incidents)
    ]
    checks = [*evidence, *_training_check(foreign)]
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


def _incident_id(recording: str, number: int) -> str:
    """Return the opaque id of an incident, the same in every import."""
    return hashlib.sha256(f"{recording}\0{number}".encode()).hexdigest()[:12]


def _training_check(foreign: ForeignRecording) -> Iterator[dict[str, Any]]:
    if foreign.training_end_ns is not None:
        yield {
            "check": TRAINING,
            "subject": foreign.app,
            "time": foreign.training_end_ns,
            "passed": True,
            "detail": "the source intends the time before this for training",
        }


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


def split_window(start_ns: int, end_ns: int, length_ns: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive windows of a length; the last one may be shorter.

    >>> list(split_window(0, 10, 4))
    [(0, 4), (4, 8), (8, 10)]
    """
    edges = chain(range(start_ns, end_ns, length_ns), (end_ns,))
    start_ns = next(edges)
    for edge_ns in edges:
        yield start_ns, edge_ns
        start_ns = edge_ns
