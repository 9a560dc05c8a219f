"""Divide recordings into windows in which detectors learn and are tested, and write these as episodes.

A detector gets a view with a healthy reference at its start and scores each step from earlier steps only. A recording
is therefore divided into consecutive views. A view ends when a new reference is available: after an incident, once the
system has been healthy for the length of a reference; otherwise after five such lengths.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.files import translate_write_errors
from faultset.core.locks import new_folder
from faultset.core.output import Progress, StepCounter
from faultset.core.times import SECOND_NS
from faultset.datasets.cache import cached_path, make_cache
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.recordings import Stretch, find_time_at, skip_intervals
from faultset.datasets.format.storage import translate_disk_full
from faultset.datasets.format.versions import create_version
from faultset.datasets.recordings.cuts import REVISION, Cut, cut_view, write_cut
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import CROSS, Fold
from faultset.evaluators.execution.dataset_source import DatasetSource, identify_dataset

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

    `split`: a published split of the recordings. By default, and for any other name, there are two folds: detectors
    are tested on alternate recordings and learn from the others. If there is only one recording, they learn from its
    first part.
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


MIN_REFERENCE_S, MIN_REFERENCE_STEPS = 120.0, 24
"""Minimum length of a reference, in seconds and in sampling steps; both must hold."""
WINDOW_REFERENCES = 5
"""A window of a healthy system lasts this many lengths of its reference."""


def choose_reference_ns(recording: Recording[Any]) -> int:
    """Return the length of the references of a recording in nanoseconds."""
    return round(max(MIN_REFERENCE_S, MIN_REFERENCE_STEPS * recording.context.sampling_step_s) * SECOND_NS)


@dataclass(frozen=True, kw_only=True)
class DetectionWindow:
    """A view of a recording: a healthy reference, and the time in which a detector may raise alarms."""

    recording: str
    reference_start_ns: int
    start_ns: int
    """End of the reference, from which alarms count."""
    end_ns: int
    healthy: bool
    """Whether no incident overlaps it, so that detectors may learn from it."""

    @property
    def cut(self) -> Cut:
        """The view, as an episode."""
        return Cut(start_ns=self.reference_start_ns, end_ns=self.end_ns, reference_end_ns=self.start_ns)

    @property
    def episode(self) -> str:
        """Id of the view as an episode."""
        return self.cut.episode_id(self.recording)


def plan_detection_windows(recording: Recording[Any], stretches: Sequence[Stretch]) -> Iterator[DetectionWindow]:
    """Yield the windows of tested stretches of a recording in time order.

    The time before the first reference of a segment is not watched.
    """
    length_ns = choose_reference_ns(recording)
    healthy = recording.truth.healthy_stretches
    for tested in _divide_at_gaps(recording, stretches):
        starts = [
            start_ns
            for stretch in healthy
            if (inside := stretch.within(tested.start_ns, tested.end_ns)) is not None
            for start_ns in range(inside.start_ns + length_ns, inside.end_ns + 1, WINDOW_REFERENCES * length_ns)
            if start_ns < tested.end_ns
        ]
        for start_ns, end_ns in pairwise([*starts, tested.end_ns]):
            yield DetectionWindow(
                recording=recording.id,
                reference_start_ns=start_ns - length_ns,
                start_ns=start_ns,
                end_ns=end_ns,
                healthy=any(stretch.start_ns <= start_ns and end_ns <= stretch.end_ns for stretch in healthy),
            )


def plan_training_windows(recording: Recording[Any], stretches: Sequence[Stretch]) -> Iterator[DetectionWindow]:
    """Yield healthy views of training stretches, from which detectors learn.

    A view is at least as long as a reference. Its reference has the usual length, but at most half of the view's.
    """
    length_ns = choose_reference_ns(recording)
    for training in _divide_at_gaps(recording, stretches):
        for healthy in recording.truth.healthy_stretches:
            inside = healthy.within(training.start_ns, training.end_ns)
            if inside is None:
                continue
            for view_start_ns in range(inside.start_ns, inside.end_ns - length_ns + 1, WINDOW_REFERENCES * length_ns):
                end_ns = min(view_start_ns + (WINDOW_REFERENCES + 1) * length_ns, inside.end_ns)
                yield DetectionWindow(
                    recording=recording.id,
                    reference_start_ns=view_start_ns,
                    start_ns=view_start_ns + min(length_ns, (end_ns - view_start_ns) // 2),
                    end_ns=end_ns,
                    healthy=True,
                )


def _divide_at_gaps(recording: Recording[Any], stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return the parts of stretches of a recording that have telemetry without a gap, in time order."""
    pieces = [
        segment.within(stretch.start_ns, stretch.end_ns)
        for stretch in sorted(stretches)
        if stretch.recording == recording.id
        for segment in recording.view.segments
    ]
    return [piece for piece in pieces if piece is not None]


Planner = Callable[[Recording[Dataset], Sequence[Stretch]], Iterator[DetectionWindow]]


@dataclass(frozen=True, kw_only=True)
class DetectionPlan:
    """The recordings of a dataset, and the windows in which detectors learn and are tested."""

    dataset: Dataset
    recordings: Mapping[str, Recording[Dataset]]
    """Id -> recording."""
    split: str
    """Name of the split of the recordings."""
    tested: Mapping[int, tuple[DetectionWindow, ...]]
    """Fold -> tested windows, by recording and time."""
    learned: Mapping[int, tuple[DetectionWindow, ...]]
    """Fold -> healthy windows that detectors learn from."""
    train: str | Dataset | None = None
    """Separate training dataset, or the URL of one without recordings."""

    @classmethod
    def of(cls, dataset: Dataset, split: str | None = None) -> DetectionPlan:
        """Plan the windows of all recordings; see `fold_recordings` for `split`."""
        return cls._of_folds(dataset, *fold_recordings(dataset, split))

    @classmethod
    def for_testing(cls, dataset: Dataset, train: str | Dataset) -> DetectionPlan:
        """Plan windows over whole recordings, for detectors that learn from another dataset; see `of`."""
        fold = RecordingFold(number=0, train=(), test=list_whole_stretches(dataset))
        return replace(cls._of_folds(dataset, "", [fold]), train=train)

    @classmethod
    def for_training(cls, dataset: Dataset) -> DetectionPlan:
        """Plan windows over all healthy stretches, for detectors that are tested on another dataset."""
        fold = RecordingFold(number=0, train=list_whole_stretches(dataset), test=())
        plan = cls._of_folds(dataset, "", [fold])
        if not plan.learned[0]:
            raise DataError(
                f"the recordings of {dataset.root} are never healthy for the length of a reference, so no detector can "
                "learn from them; choose another --train"
            )
        return plan

    @classmethod
    def _of_folds(cls, dataset: Dataset, name: str, folds: Sequence[RecordingFold]) -> DetectionPlan:
        recordings = {recording.id: recording for recording in dataset.recordings()}

        def plan(planner: Planner, stretches: Sequence[Stretch]) -> tuple[DetectionWindow, ...]:
            return tuple(window for recording in recordings.values() for window in planner(recording, stretches))

        tested = {fold.number: plan(plan_detection_windows, fold.test) for fold in folds}
        if any(fold.test for fold in folds) and not any(tested.values()):
            min_reference_s = min(map(choose_reference_ns, recordings.values())) / 1e9
            raise DataError(
                f"the tested recordings of {dataset.root} are never healthy for {min_reference_s:g} s, the length of a "
                "reference, so no detector can watch them; choose another --split, or record longer gaps between "
                "incidents"
            )
        learned = {fold.number: plan(plan_training_windows, fold.train) for fold in folds}
        return cls(dataset=dataset, recordings=recordings, split=name, tested=tested, learned=learned)

    @cached_property
    def windows(self) -> dict[str, DetectionWindow]:
        """Episode id -> window."""
        folds = (*self.learned.values(), *self.tested.values())
        return {window.episode: window for windows in folds for window in windows}

    @property
    def folds(self) -> tuple[Fold, ...]:
        """The folds in terms of episodes."""
        return tuple(
            Fold(
                number=number,
                healthy_train=tuple(dict.fromkeys(window.episode for window in self.learned[number])),
                faulty_train=(),
                test=tuple(window.episode for window in windows),
            )
            for number, windows in self.tested.items()
        )

    def load_source(self, progress: Progress | None = None) -> DatasetSource:
        """Write the windows into the cache of the dataset, unless they are already there, and read them as a dataset.

        `progress`: called as windows are written.
        """
        folder = cached_path(Path(self.dataset.root).resolve(), f"detection-windows-{self._hash_windows()}")
        if not folder.is_dir():
            self._write(folder, progress)
        source = DatasetSource.of(open_dataset(folder))
        return replace(source, **identify_dataset(self.dataset)._asdict())

    def _hash_windows(self) -> str:
        windows = [astuple(window) for window in self.windows.values()]
        identity = json.dumps([REVISION, self.dataset.recording_hashes, windows])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]

    def _write(self, folder: Path, progress: Progress | None) -> None:
        steps = StepCounter(len(self.windows), progress)
        with translate_disk_full(folder.parent), translate_write_errors(folder):
            make_cache(folder)
            with new_folder(folder, "write windows") as scratch:
                for window in self.windows.values():
                    recording = self.recordings[window.recording]
                    if window.healthy:
                        write_cut(recording.view, recording.truth, window.cut, scratch)
                    else:
                        cut_view(
                            recording.view,
                            scratch,
                            start_ns=window.reference_start_ns,
                            end_ns=window.end_ns,
                            reference_end_ns=window.start_ns,
                        )
                    steps.add()
                create_version(scratch, provenance={"windows_of": self.dataset.version})
