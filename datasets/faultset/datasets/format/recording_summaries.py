"""Facts about recordings that go into a version, and the splits of recordings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from faultset.datasets.format.context import CONTEXT_FILE, RecordingContext, read_recording_context
from faultset.datasets.format.file_records import FileSummary, summarize_files
from faultset.datasets.format.incidents import Incident, read_incidents, read_truth_rows
from faultset.datasets.format.recordings import Chunk, chunk_files, read_chunks, segments_of
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES
from faultset.datasets.format.stretches import Stretch, find_time_at, skip_intervals
from faultset.datasets.format.version_files import RecordingSplit, compute_shuffle_key

TRAIN_SHARE, VALIDATION_SHARE = 0.6, 0.2
"""Shares of a recording's time in the split by time; the rest is for testing."""
_SHARES = {"train": 0.5, "test": 0.25, "validation": 0.25}
"""Shares of the sides, for applications with a single recording."""
_SIDES = ("train", "test", "validation", "train")
"""Sides of the recordings of an application, in turn."""
TRAINING = "training"
"""Name of the check of an imported recording whose time is the end of the training part that its source defines."""


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
        """Stretches without a gap."""
        return segments_of(self.chunks)


def summarize_recording(path: Path, numbers: Iterable[int] | None = None) -> RecordingSummary:
    """Read and hash the files of a recording.

    Parameters
    ----------
    path
        Folder of the recording.
    numbers
        Numbers of its chunks; by default all that are complete.
    """
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
    """Return the splits of the recordings of a version.

    Parameters
    ----------
    recordings
        Recording -> its summary.
    seed
        Seed of the shuffling; equal seeds give equal splits.
    """
    segments = {recording: summary.segments for recording, summary in recordings.items()}
    splits = {}
    if len(recordings) > 1:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for recording, summary in recordings.items():
            groups[summary.context.app].append(recording)
        sides = _deal_recordings(groups, seed)
        pairs = [(segment, side) for name, side in sides.items() for segment in segments[name]]
        splits["by-recording"] = _build_split("recording", pairs)
        apps = sorted(groups, key=lambda name: compute_shuffle_key(name, seed))
        if len(apps) > 1:
            app_sides = {app: _SIDES[number % len(_SIDES)] for number, app in enumerate(apps)}
            pairs = [
                (segment, app_sides[recordings[name].context.app]) for name in recordings for segment in segments[name]
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
    """Return the side of each recording, so that recordings of one application are on different sides.

    Of two recordings, one is for training and one for testing. The second is for validation instead if testing has
    recordings of another application and validation has none.
    Applications with a single recording are distributed by `_SHARES`.

    Parameters
    ----------
    groups
        Application -> its recordings.
    """
    sides: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for app in sorted(groups, key=lambda name: (-len(groups[name]), compute_shuffle_key(name, seed))):
        for number, recording in enumerate(sorted(groups[app], key=lambda name: compute_shuffle_key(name, seed))):
            side = _SIDES[number % len(_SIDES)]
            if len(groups[app]) == 1:
                side = min(_SHARES, key=lambda name: counts[name] / _SHARES[name])
            elif len(groups[app]) == 2 and side == "test" and counts["test"] and not counts["validation"]:
                side = "validation"
            sides[recording] = side
            counts[side] += 1
    return sides


def _build_split(key: str, pairs: Iterable[tuple[Stretch, str]]) -> RecordingSplit:
    sides: defaultdict[str, list[Stretch]] = defaultdict(list)
    for stretch, side in pairs:
        sides[side].append(stretch)
    train, validation, test = (tuple(sorted(sides[name])) for name in ("train", "validation", "test"))
    return RecordingSplit(key=key, train=train, validation=validation, test=test)


def _divide_as_source(summary: RecordingSummary) -> Iterator[tuple[Stretch, str]]:
    """Divide a recording into the training and test parts of its source; yield nothing without them."""
    if summary.training_end_ns is None:
        return
    bounds = (summary.chunks[0].start_ns, summary.training_end_ns, summary.chunks[-1].end_ns)
    for (first_ns, last_ns), side in zip(pairwise(bounds), ("train", "test"), strict=True):
        for segment in summary.segments:
            stretch = segment.within(first_ns, last_ns)
            if stretch is not None:
                yield stretch, side


def _divide(summary: RecordingSummary) -> Iterator[tuple[Stretch, str]]:
    """Divide a recording by time, at points without an incident; a side may be empty."""
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
    for (first_ns, last_ns), side in zip(pairwise(bounds), ("train", "validation", "test"), strict=True):
        for segment in summary.segments:
            stretch = segment.within(first_ns, last_ns)
            if stretch is not None:
                yield stretch, side
