"""The truth of a recording: incidents, evidence, decoys, load and void stretches of its chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultset.core.documents import json_lines
from faultset.core.regular_files import read_regular
from faultset.datasets.format.labels import GroundTruth, decoded_rows
from faultset.datasets.format.recordings import TRUTH_JSON_FIELDS, Chunk
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, EpisodeId
from faultset.datasets.format.storage import TRUTH_LIMITS, write_parquet
from faultset.datasets.format.table_folders import JOURNAL_FILE, build_truth_table, table_file

ANOMALY = "anomaly"
"""Fault name of incidents in imported series that do not name their faults."""


@dataclass(frozen=True, kw_only=True)
class Incident(GroundTruth):
    """One fault of a recording, with its effects and its end. Times are UTC nanoseconds, or None if unknown.

    An incident of an imported series has only `inject_start_ns` and `recover_start_ns`, its labelled bounds.
    """

    incident: EpisodeId
    """Opaque id, unique in the recording."""

    @property
    def start_ns(self) -> int:
        """Time when the fault started to act."""
        return self.onset_ns or 0

    @property
    def end_ns(self) -> int | None:
        """Time from which the system was healthy again, else the end or start of the undo; None if all are unknown."""
        return self.healthy_again_ns or self.recover_done_ns or self.recover_start_ns

    @property
    def fault_duration_ns(self) -> int | None:
        """Duration from the injection until its undo began; None if either is unknown."""
        if self.inject_start_ns is None or self.recover_start_ns is None:
            return None
        return self.recover_start_ns - self.inject_start_ns

    def __repr__(self) -> str:
        end = "no end" if self.end_ns is None else f"{(self.end_ns - self.start_ns) / 1e9:.0f} s"
        return f"<Incident {self.incident}: {self.fault} on {', '.join(self.targets)}, {self.verdict}, {end}>"


def read_truth_rows(recording_path: Path, chunks: Iterable[Chunk], table: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a truth table of several chunks, with times as integers.

    Raises
    ------
    DataError
        A file is missing or damaged.
    """
    for chunk in chunks:
        path = recording_path / chunk.folder / table_file(table)
        yield from decoded_rows(path, table, CHUNK_TRUTH_TABLES[table], TRUTH_JSON_FIELDS.get(table, ()))


def chunk_truth(recording_path: Path, chunk: Chunk) -> dict[str, list[dict[str, Any]]]:
    """Return the truth of a chunk in the form that `RecordingWriter.append` expects."""
    return {table: list(read_truth_rows(recording_path, [chunk], table)) for table in CHUNK_TRUTH_TABLES}


def replace_truth(recording_path: Path, chunk: Chunk, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a truth table of a chunk, in a copy of the recording that no version lists yet."""
    path, json_fields = recording_path / chunk.folder / table_file(table), TRUTH_JSON_FIELDS.get(table, ())
    title = f"chunk {chunk.number} of recording {chunk.recording}"
    schema = CHUNK_TRUTH_TABLES[table]
    write_parquet(path, build_truth_table(table, schema, rows, json_fields, unit=chunk.recording, title=title))


def read_incidents(recording_path: Path, chunks: Iterable[Chunk]) -> tuple[Incident, ...]:
    """Return the incidents of a recording in order of injection; the last row of each incident counts."""
    origin = f"incidents of {recording_path}"
    rows = {row["incident"]: row for row in read_truth_rows(recording_path, chunks, "incidents")}
    incidents = (Incident.from_row(row, origin=origin) for row in rows.values())
    return tuple(sorted(incidents, key=lambda incident: incident.inject_start_ns or 0))


def read_chunk_journals(recording_path: Path, chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
    """Return the recorded changes to the platform in order; lines that a crash has cut short are skipped."""
    records = []
    for chunk in chunks:
        path = recording_path / chunk.folder / JOURNAL_FILE
        content = read_regular(path, limit_bytes=TRUTH_LIMITS.file_bytes, below=path.parents[1])
        records += json_lines(content, str(path))
    return records
