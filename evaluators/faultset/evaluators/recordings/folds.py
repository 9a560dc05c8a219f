"""Divide recordings into stretches that detectors learn from and stretches that they are tested on."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.format.version_files import VERSIONS
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import CROSS

FIRST_PART = "first-part"
"""Name of the split of a recording that is alone."""
FIRST_SHARE = 0.3
"""Share of a recording that detectors learn from if it is alone."""


@dataclass(frozen=True, kw_only=True)
class RecordingFold:
    """Stretches that detectors learn from, and stretches on which they are then tested."""

    number: int
    train: tuple[Stretch, ...]
    test: tuple[Stretch, ...]


def identify_dataset(dataset: Dataset) -> dict[str, str]:
    """Return name, version and digest of a dataset as a source has them."""
    root = Path(dataset.root).resolve()
    listing = root / VERSIONS / f"{dataset.version}.json"
    digest = hashlib.sha256(listing.read_bytes()).hexdigest()
    return {"name": root.name, "version": dataset.version, "digest": digest}


def fold_recordings(dataset: Dataset, split: str | None = None) -> tuple[str, tuple[RecordingFold, ...]]:
    """Return the name of a split of recordings, and its folds.

    Parameters
    ----------
    split
        A published split of the recordings. By default, and for any other name, there are two folds: detectors learn
        from every other recording of each application and are tested on the rest, or the first part of a recording
        that is alone.

    Raises
    ------
    DataError
        The split has no test stretch.
    """
    recordings = dataset.recordings()
    published = dataset.recording_splits.get(split or "")
    if published is not None:
        if not published.test:
            raise DataError(
                f'recordings split "{split}" of {dataset.root} has no test stretch, so no detector can be scored; '
                "publish one, or leave out --split"
            )
        return split or "", (RecordingFold(number=0, train=published.train, test=published.test),)
    if len(recordings) == 1:
        return FIRST_PART, (_first_part(recordings[0]),)
    groups: defaultdict[str, list[Recording[Dataset]]] = defaultdict(list)
    for recording in recordings:
        groups[recording.context.app].append(recording)
    ordered = [recording for _, group in sorted(groups.items()) for recording in group]
    halves = [tuple(Stretch(item.id, item.start_ns, item.end_ns) for item in ordered[first::2]) for first in (0, 1)]
    return CROSS, tuple(
        RecordingFold(number=number, train=halves[1 - number], test=halves[number]) for number in (0, 1)
    )


def _first_part(recording: Recording[Dataset]) -> RecordingFold:
    """Divide a recording after its first part, when no incident is under way."""
    rest_ns = round(FIRST_SHARE * recording.duration_s * SECOND_NS)
    point_ns = recording.end_ns
    for segment in recording.view.segments:
        length_ns = segment.end_ns - segment.start_ns
        if rest_ns < length_ns:
            point_ns = segment.start_ns + rest_ns
            break
        rest_ns -= length_ns
    for incident in recording.truth.incidents:
        start_ns, end_ns = recording.truth.bounds(incident)
        if min(start_ns, incident.inject_start_ns or start_ns) <= point_ns < end_ns:
            point_ns = end_ns
    return RecordingFold(
        number=0,
        train=(Stretch(recording.id, recording.start_ns, point_ns),),
        test=(Stretch(recording.id, point_ns, recording.end_ns),),
    )
