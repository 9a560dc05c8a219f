"""Divide recordings into stretches that detectors learn from and stretches that they are tested on."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset
from faultset.datasets.format.recordings import Stretch, find_time_at, skip_intervals
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import CROSS

FIRST_PART = "first-part"
"""Name of the split of a dataset with a single recording."""
FIRST_SHARE = 0.3
"""Share of a single recording that detectors learn from."""


@dataclass(frozen=True, kw_only=True)
class RecordingFold:
    """Stretches that detectors learn from, and stretches on which they are then tested."""

    number: int
    train: tuple[Stretch, ...]
    test: tuple[Stretch, ...]


def list_whole_stretches(dataset: Dataset) -> tuple[Stretch, ...]:
    """Return one stretch per recording, from its start to its end."""
    return tuple(Stretch(item.id, item.start_ns, item.end_ns) for item in dataset.recordings())


def fold_recordings(dataset: Dataset, split: str | None = None) -> tuple[str, tuple[RecordingFold, ...]]:
    """Return the name of a split of recordings, and its folds.

    Parameters
    ----------
    split
        A published split of the recordings. By default, and for any other name, there are two folds: detectors learn
        from every other recording of each application and are tested on the rest. If there is only one recording, they
        learn from its first part.

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
        return FIRST_PART, (_divide_recording(recordings[0]),)
    groups: defaultdict[str, list[Recording[Dataset]]] = defaultdict(list)
    for recording in recordings:
        groups[recording.context.app].append(recording)
    ordered = [recording for _, group in sorted(groups.items()) for recording in group]
    halves = [tuple(Stretch(item.id, item.start_ns, item.end_ns) for item in ordered[first::2]) for first in (0, 1)]
    return CROSS, tuple(
        RecordingFold(number=number, train=halves[1 - number], test=halves[number]) for number in (0, 1)
    )


def _divide_recording(recording: Recording[Dataset]) -> RecordingFold:
    """Divide a recording after its first part, at a time without an incident."""
    incidents = []
    for incident in recording.truth.incidents:
        start_ns, end_ns = recording.truth.bounds(incident)
        incidents.append((min(start_ns, incident.inject_start_ns or start_ns), end_ns))
    boundary_ns = skip_intervals(find_time_at(FIRST_SHARE, recording.view.segments), incidents)
    return RecordingFold(
        number=0,
        train=(Stretch(recording.id, recording.start_ns, boundary_ns),),
        test=(Stretch(recording.id, boundary_ns, recording.end_ns),),
    )
