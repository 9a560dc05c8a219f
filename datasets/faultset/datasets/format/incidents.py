"""The truth of a recording: its incidents, the splits of recordings, and the summary stored in a version."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.core.documents import json_lines
from faultset.core.regular_files import read_regular
from faultset.datasets.format.context import CONTEXT_FILE, RecordingContext, read_recording_context
from faultset.datasets.format.episodes import JOURNAL_FILE, build_truth_table, table_file
from faultset.datasets.format.labels import GroundTruth, decoded_rows, join_distinct
from faultset.datasets.format.recordings import (
    TRUTH_JSON_FIELDS,
    Chunk,
    Stretch,
    chunk_files,
    find_time_at,
    read_chunks,
    remove_intervals,
    segments_of,
    skip_intervals,
)
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES, EpisodeId
from faultset.datasets.format.storage import TRUTH_LIMITS, write_parquet
from faultset.datasets.format.version_files import FileSummary, RecordingSplit, compute_shuffle_key, summarize_files

if TYPE_CHECKING:
    import pandas as pd

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
    """Yield the rows of a truth table of several chunks, with times as integers."""
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


_TEXTS = ("fault", "target", "cause", "level", "type", "verdict")
_TIMES = ("start", "noticed", "undone", "end")


class RecordingTruth:
    """The truth of a recording, which only scoring may read.

    Parameters
    ----------
    path
        Folder of the recording.
    chunks
        Its chunks in time order.
    segments
        Its stretches without a gap.
    """

    def __init__(self, path: Path, chunks: Sequence[Chunk], segments: Sequence[Stretch]) -> None:
        self._path, self._chunks, self._segments = path, tuple(chunks), tuple(segments)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents in order of their start, with all fields."""
        return read_incidents(self._path, self._chunks)

    def bounds(self, incident: Incident) -> tuple[int, int]:
        """Return the start and end of an incident; without an end, it lasts until its segment ends."""
        start_ns = incident.start_ns
        segment_end_ns = next(
            (segment.end_ns for segment in self._segments if start_ns < segment.end_ns), self._segments[-1].end_ns
        )
        end_ns = segment_end_ns if incident.end_ns is None else min(incident.end_ns, segment_end_ns)
        return start_ns, max(start_ns, end_ns)

    @cached_property
    def void_stretches(self) -> tuple[Stretch, ...]:
        """Stretches that are not scored, for instance because the host was disturbed or nothing is labelled."""
        rows = self.rows("voids")
        return tuple(Stretch(self._path.name, row["start"], row["end"]) for row in rows)

    @cached_property
    def healthy_stretches(self) -> tuple[Stretch, ...]:
        """Stretches without an incident or a void; none crosses the end of a segment. They may contain decoys."""
        incidents = [self._unhealthy_bounds(incident) for incident in self.incidents]
        voids = [(void.start_ns, void.end_ns) for void in self.void_stretches]
        return tuple(remove_intervals(self._segments, [*incidents, *voids]))

    def _unhealthy_bounds(self, incident: Incident) -> tuple[int, int]:
        """Return the bounds of an incident, from the start of its injection if that is earlier."""
        start_ns, end_ns = self.bounds(incident)
        return min(start_ns, incident.inject_start_ns or start_ns), end_ns

    def rows(self, table: str) -> list[dict[str, Any]]:
        return list(read_truth_rows(self._path, self._chunks, table))

    def incident_frame(self) -> pd.DataFrame:
        import pandas as pd

        rows = {incident.incident: self._row(incident) for incident in self.incidents}
        columns = [*_TEXTS, *_TIMES, "duration_s", "is_scored", "start_ns", "end_ns"]
        index = pd.Index(list(rows), name="incident", dtype=object)
        frame = pd.DataFrame(list(rows.values()), index=index, columns=columns, dtype=object)
        for name in _TIMES:
            frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
        return frame.astype({"duration_s": "float64", "is_scored": bool, "start_ns": "int64", "end_ns": "int64"})

    def _row(self, incident: Incident) -> dict[str, Any]:
        start_ns, end_ns = self.bounds(incident)
        return {
            "fault": incident.fault,
            "target": join_distinct(incident.targets) or None,
            "cause": join_distinct(cause.service for cause in incident.root_causes) or None,
            "level": incident.system_level,
            "type": incident.fault_type,
            "verdict": incident.verdict,
            "start": start_ns,
            "noticed": incident.first_manifest_ns,
            "undone": incident.recover_start_ns,
            "end": end_ns,
            "duration_s": (end_ns - start_ns) / 1e9,
            "is_scored": not any(void.overlaps(start_ns, end_ns) for void in self.void_stretches),
            "start_ns": start_ns,
            "end_ns": end_ns,
        }

    def frame(self, table: str) -> pd.DataFrame:
        """Return a truth table with times as UTC timestamps."""
        import pandas as pd

        schema = CHUNK_TRUTH_TABLES[table]
        names = [name for name in schema.names if name != "episode"]
        frame = pd.DataFrame(self.rows(table), columns=names, dtype=object)
        for name in ("start", "end", "time"):
            if name in names:
                frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
        return frame.infer_objects()


TRAIN_SHARE, VALIDATION_SHARE = 0.6, 0.2
"""Shares of a recording's time in the split by time; the rest is for testing."""
_SHARES = {"train": 0.5, "test": 0.25, "validation": 0.25}
"""Shares of the subsets, for applications with only one recording."""
_SUBSETS = ("train", "test", "validation", "train")
"""Subsets that the recordings of an application are assigned to, in turn."""
TRAINING = "training"
"""Name of the check that records, for an imported recording, when the training part of its source ends."""


@dataclass(frozen=True, kw_only=True)
class RecordingSummary(FileSummary):
    """Facts about a recording that go into a version."""

    context: RecordingContext
    chunks: tuple[Chunk, ...]
    incidents: tuple[Incident, ...]
    training_end_ns: int | None = None
    """End of the training part of the source that the recording was imported from; None if it has none."""

    @property
    def duration_s(self) -> float:
        """Seconds of telemetry, without gaps."""
        return sum(chunk.end_ns - chunk.start_ns for chunk in self.chunks) / 1e9

    @property
    def segments(self) -> tuple[Stretch, ...]:
        return segments_of(self.chunks)


def summarize_recording(path: Path, numbers: Iterable[int] | None = None) -> RecordingSummary:
    """Read and hash the files of a recording, by default of all complete chunks."""
    context, chunks = read_recording_context(path), read_chunks(path, numbers)
    names = [CONTEXT_FILE, *(f"{chunk.folder}/{name}" for chunk in chunks for name in chunk_files(context.tables))]
    files, stamps = summarize_files(path, sorted(names), context.tables | CHUNK_TRUTH_TABLES)
    checks = read_truth_rows(path, chunks, "evidence")
    return RecordingSummary(
        context=context,
        chunks=chunks,
        incidents=read_incidents(path, chunks),
        training_end_ns=next((row["time"] for row in checks if row["check"] == TRAINING), None),
        files=files,
        stamps=stamps,
    )


def make_recording_splits(recordings: Mapping[str, RecordingSummary], *, seed: int = 0) -> dict[str, RecordingSplit]:
    """Return the splits of the recordings of a version."""
    segments = {recording: summary.segments for recording, summary in recordings.items()}
    splits = {}
    if len(recordings) > 1:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for recording, summary in recordings.items():
            groups[summary.context.app].append(recording)
        subsets = _deal_recordings(groups, seed)
        pairs = [(segment, subset) for name, subset in subsets.items() for segment in segments[name]]
        splits["by-recording"] = _build_split("recording", pairs)
        apps = sorted(groups, key=lambda name: compute_shuffle_key(name, seed))
        if len(apps) > 1:
            app_subsets = {app: _SUBSETS[number % len(_SUBSETS)] for number, app in enumerate(apps)}
            pairs = [
                (segment, app_subsets[recordings[name].context.app])
                for name in recordings
                for segment in segments[name]
            ]
            splits["by-app"] = _build_split("app", pairs)
    by_source = [pair for summary in recordings.values() for pair in _divide_as_source(summary)]
    if by_source:
        splits["by-source"] = _build_split("source", by_source)
    by_time = [pair for summary in recordings.values() for pair in _divide(summary)]
    if by_time:
        splits["by-time"] = _build_split("time", by_time)
    return splits


def _deal_recordings(groups: Mapping[str, Sequence[str]], seed: int) -> dict[str, str]:
    """Return the subset of each recording, so that recordings of one application are in different subsets.

    Of two recordings, one is for training and one for testing. The second is for validation instead if testing has
    recordings of another application and validation has none. Applications with one recording are distributed by
    `_SHARES`.
    """
    subsets: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for app in sorted(groups, key=lambda name: (-len(groups[name]), compute_shuffle_key(name, seed))):
        for number, recording in enumerate(sorted(groups[app], key=lambda name: compute_shuffle_key(name, seed))):
            subset = _SUBSETS[number % len(_SUBSETS)]
            if len(groups[app]) == 1:
                subset = min(_SHARES, key=lambda name: counts[name] / _SHARES[name])
            elif len(groups[app]) == 2 and subset == "test" and counts["test"] and not counts["validation"]:
                subset = "validation"
            subsets[recording] = subset
            counts[subset] += 1
    return subsets


def _build_split(key: str, pairs: Iterable[tuple[Stretch, str]]) -> RecordingSplit:
    subsets: defaultdict[str, list[Stretch]] = defaultdict(list)
    for stretch, subset in pairs:
        subsets[subset].append(stretch)
    train, validation, test = (tuple(sorted(subsets[name])) for name in ("train", "validation", "test"))
    return RecordingSplit(key=key, train=train, validation=validation, test=test)


def _divide_as_source(summary: RecordingSummary) -> Iterator[tuple[Stretch, str]]:
    """Divide a recording into the training and test parts of its source; yield nothing if it has none."""
    if summary.training_end_ns is None:
        return
    bounds = (summary.chunks[0].start_ns, summary.training_end_ns, summary.chunks[-1].end_ns)
    for (first_ns, last_ns), subset in zip(pairwise(bounds), ("train", "test"), strict=True):
        for segment in summary.segments:
            stretch = segment.within(first_ns, last_ns)
            if stretch is not None:
                yield stretch, subset


def _divide(summary: RecordingSummary) -> Iterator[tuple[Stretch, str]]:
    """Divide a recording by time, at points without an incident; a subset may be empty."""
    end_ns = summary.chunks[-1].end_ns
    incidents = [
        (incident.inject_start_ns or 0, end_ns if incident.end_ns is None else incident.end_ns)
        for incident in summary.incidents
    ]
    points = [
        min(end_ns, skip_intervals(find_time_at(share, summary.segments), incidents))
        for share in (TRAIN_SHARE, TRAIN_SHARE + VALIDATION_SHARE)
    ]
    bounds = [summary.chunks[0].start_ns, *points, end_ns]
    for (first_ns, last_ns), subset in zip(pairwise(bounds), ("train", "validation", "test"), strict=True):
        for segment in summary.segments:
            stretch = segment.within(first_ns, last_ns)
            if stretch is not None:
                yield stretch, subset
