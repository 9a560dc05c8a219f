"""Cut ordinary episodes out of the recordings of a dataset, for localizers and diagnosers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.format.episodes import table_file
from faultset.datasets.format.recordings import Stretch
from faultset.datasets.recordings.cuts import (
    Cut,
    CutLengths,
    plan_fault_cuts,
    plan_healthy_cuts,
    write_cuts,
)
from faultset.datasets.recordings.recording import Recording
from faultset.datasets.training.folds import Fold, episode_labels, folds_of_split
from faultset.evaluators.execution.dataset_source import DatasetSource, identify_dataset
from faultset.evaluators.execution.settings import ALARM_DETECTOR, ALARM_DETECTOR_WITHOUT_SPANS
from faultset.evaluators.recordings.results import RecordingResults

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
        """Return the source of the cuts with the identity of their origin."""
        return replace(source, **identify_dataset(self.origin)._asdict())

    def select_folds(self, split: str | None) -> tuple[Fold, ...]:
        """Return the fold of a published split of recordings; empty for all other splits.

        Raises
        ------
        DataError
            The test stretches contain no episode.
        """
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


def list_online_alarms(
    cuts: CutEpisodes, recordings: RecordingResults, choose_detector: Callable[[str], str]
) -> dict[str, int | None]:
    """Return when a detector that ran online over the recordings raised an alarm in each episode.

    In an episode with an incident, the alarm is the first one in the incident.

    Parameters
    ----------
    choose_detector
        Episode -> name of the detector; of several seeds the first is used.

    Returns
    -------
    dict
        Alarm of each episode in UTC nanoseconds, or None; episodes outside of watched time are left out.
    """
    alarms: dict[str, int | None] = {}
    for episode, (recording, cut) in cuts.cuts.items():
        runs = recordings.runs.get(choose_detector(episode), ())
        run = next((run for run in runs if run.facts.recording == recording), None)
        first_ns = cut.reference_end_ns if cut.incident is None else cut.incident.start_ns
        if run is None or not any(start <= first_ns < end for start, end in run.facts.watched):
            continue
        alarms[episode] = next(
            (
                alarm.start_ns
                for alarm in run.alarms
                if first_ns <= alarm.start_ns < cut.end_ns
                and (cut.incident is None or alarm.incident == cut.incident.incident)
            ),
            None,
        )
    return alarms


def _contains(stretches: Iterable[Stretch], recording: str, cut: Cut) -> bool:
    return any(
        stretch.recording == recording and stretch.start_ns <= cut.start_ns and cut.end_ns <= stretch.end_ns
        for stretch in stretches
    )


def cut_recordings(dataset: Dataset) -> CutEpisodes | None:
    """Cut an episode around each incident of all recordings, and about as many without a fault.

    The times before and after the onset are chosen so that nine tenths of the incidents have them, within limits.

    Returns
    -------
    CutEpisodes or None
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
    """Return the times before and after an onset that nine tenths of the incidents have, within limits."""
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
