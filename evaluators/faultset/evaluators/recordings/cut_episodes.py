"""Cut ordinary episodes out of the recordings of a dataset, for localizers and diagnosers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.recordings.cuts import Cut, CutLengths, plan_fault_cuts, plan_healthy_cuts, write_cuts
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import Fold, episode_labels, folds_of_split
from faultset.evaluators.execution.dataset_source import DatasetSource, identify_dataset, open_source
from faultset.evaluators.execution.settings import ALARM_DETECTOR, ALARM_DETECTOR_WITHOUT_SPANS

BEFORE_S, AFTER_S = (60.0, 300.0), (20.0, 120.0)
"""Shortest and longest times before and after an onset, if there are samples every `STEP_S` seconds or faster."""
STEP_S = 5.0
_USUAL_SHARE = 0.9
"""Share of the incidents that should have these times."""


@dataclass(frozen=True, kw_only=True)
class CutEpisodes:
    """Episodes that were cut out of the recordings of a dataset."""

    dataset: Dataset
    origin: Dataset
    cuts: Mapping[str, tuple[str, Cut]]
    """Episode -> its recording, and its window there."""

    def restore_identity(self, source: DatasetSource) -> DatasetSource:
        return replace(source, **identify_dataset(self.origin)._asdict())

    def select_folds(self, split: str | None) -> tuple[Fold, ...]:
        """Return the fold of a published split of recordings; empty for all other splits."""
        published = self.origin.recording_splits.get(split or "")
        if published is None:
            return ()
        train, test = (
            [episode for episode, (recording, cut) in self.cuts.items() if _contains(stretches, recording, cut)]
            for stretches in (published.train, published.test)
        )
        if not test:
            raise DataError(
                f'the test stretches of recordings split "{split}" of {self.origin.root} contain no incident with '
                "enough time around it; choose another --split, or --tasks detection"
            )
        return tuple(
            folds_of_split(
                split, {split or "": {"train": train, "test": test}}, [*episode_labels(self.dataset).values()]
            )
        )


def list_alarm_detectors(dataset: Dataset) -> list[str]:
    """Return the default detectors for the dataset's recordings, which may differ in whether they have spans."""
    with_spans = {
        any(path.endswith(table_file("spans")) and record.rows for path, record in files.items())
        for files in dataset.recording_files.values()
    }
    return [ALARM_DETECTOR if has_spans else ALARM_DETECTOR_WITHOUT_SPANS for has_spans in sorted(with_spans)]


def _contains(stretches: Iterable[Stretch], recording: str, cut: Cut) -> bool:
    return any(
        stretch.recording == recording and stretch.start_ns <= cut.start_ns and cut.end_ns <= stretch.end_ns
        for stretch in stretches
    )


def cut_recordings(dataset: Dataset) -> CutEpisodes | None:
    """Cut an episode around each incident of all recordings, and about as many without a fault.

    The times before and after the onset are, within limits, the longest that nine of ten incidents allow.

    None if no recording has several services and an incident with a root cause and enough telemetry around it.
    """
    recordings = [recording for recording in dataset.recordings() if len(recording.context.services) > 1]
    if not recordings:
        return None
    lengths = choose_lengths(recordings)
    faults = [list(plan_fault_cuts(recording.truth, lengths)) for recording in recordings]
    if not any(cut.incident is not None and cut.incident.root_causes for cuts in faults for cut in cuts):
        return None
    healthy_count = max(map(len, faults))
    windows = {
        cut.episode_id(recording.id): (recording.id, cut)
        for recording, cuts in zip(recordings, faults, strict=True)
        for cut in (*cuts, *plan_healthy_cuts(recording.truth, lengths, healthy_count))
    }
    pairs = [(recording.view, recording.truth) for recording in recordings]
    folder = write_cuts(pairs, lengths, healthy=healthy_count, hashes=dataset.recording_hashes)
    return CutEpisodes(dataset=open_dataset(folder), origin=dataset, cuts=windows)


def choose_lengths(recordings: Sequence[Recording[Any]]) -> CutLengths:
    """Return the longest times before and after an onset that nine of ten incidents allow, within limits."""
    before_s, after_s = [], []
    for recording in recordings:
        truth = recording.truth
        ends = [stretch.end_ns for stretch in truth.healthy_stretches]
        starts = [stretch.start_ns for stretch in truth.healthy_stretches]
        for incident in truth.incidents:
            first_ns = incident.inject_start_ns or incident.start_ns
            if first_ns in ends:
                before_s.append((first_ns - starts[ends.index(first_ns)]) / SECOND_NS)
            after_s.append(((incident.recover_start_ns or truth.bounds(incident)[1]) - incident.start_ns) / SECOND_NS)
    scale = max(1.0, *(recording.context.sampling_step_s / STEP_S for recording in recordings))
    return CutLengths(
        before_s=_choose_length(before_s, BEFORE_S, scale), after_s=_choose_length(after_s, AFTER_S, scale)
    )


def _choose_length(values: Iterable[float], limits: tuple[float, float], scale: float) -> float:
    data = np.asarray(list(values))
    shortest, longest = (scale * limit for limit in limits)
    common = float(np.quantile(data, 1 - _USUAL_SHARE, method="lower")) if len(data) else shortest
    return min(longest, max(shortest, float(np.floor(common))))


def check_recordings_differ(train: Dataset, test: Dataset) -> None:
    """Raise DataError if a recording is in both datasets, possibly under different names."""
    tested = test.recordings()
    both = [
        item.id
        for item in train.recordings()
        if any(item.id == other.id or _has_same_content(item, other) for other in tested)
    ]
    if both:
        raise DataError(
            f"{train.root} and {test.root} share {count_text(len(both), 'recording')} (first: {both[0]}), so methods "
            "would be tested on their training data; train on a dataset that shares no recording"
        )


def _has_same_content(item: Recording[Dataset], other: Recording[Dataset]) -> bool:
    """Return whether two recordings cover the same times and have the same metrics in their first chunk."""
    windows = [[(chunk.start_ns, chunk.end_ns) for chunk in recording.view.chunks] for recording in (item, other)]
    if windows[0] != windows[1]:
        return False
    first, second = (
        recording.table("metrics", *windows[0][0]).select(["time", "value"]) for recording in (item, other)
    )
    return first.equals(second)


@contextmanager
def open_training_episodes(train: str | Dataset, workers: int) -> Iterator[Callable[[], DatasetSource]]:
    """Open the dataset on which methods for episodes are trained; see `open_source`.

    If the dataset has no episodes, they are cut out of its recordings.
    """
    if isinstance(train, str) or train.episodes:
        with open_source(train, None, workers) as read_source:
            yield read_source
        return
    train.check_files(workers)
    cuts = cut_recordings(train)
    if cuts is None:
        raise DataError(
            f"{train.root} has only recordings, and no episode can be cut from them: this requires several services "
            "and an incident with a known root cause and enough telemetry around it; choose another --train, or "
            "--tasks detection"
        )
    with open_source(cuts.dataset, None, workers) as read_source:
        yield lambda: cuts.restore_identity(read_source())
