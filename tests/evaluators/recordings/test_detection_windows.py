"""The windows of a recording, and the stretches that detectors learn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets.format.recordings import Stretch
from faultset.evaluators.recordings.cut_episodes import choose_lengths, cut_recordings
from faultset.evaluators.recordings.detection_plan import (
    DetectionPlan,
    fold_recordings,
    plan_detection_windows,
    plan_training_windows,
)
from tests.datasets.recorded_samples import START_NS, at
from tests.evaluators.recordings.recording_samples import recorded_dataset

SECOND = 1_000_000_000
INCIDENTS = [(400.0, 120.0), (600.0, 120.0), (2700.0, 120.0)]
"""Each ends ten seconds later, when the application is healthy; only 70 s are between the first two."""


@pytest.fixture
def dataset(tmp_path: Path):
    return recorded_dataset(tmp_path, {"r1": INCIDENTS})


def seconds(*times_ns: int) -> tuple[int, ...]:
    return tuple((time_ns - START_NS) // SECOND for time_ns in times_ns)


def test_a_window_lasts_until_the_next_reference_is_healthy(dataset) -> None:
    recording = dataset.recording("r1")
    windows = list(plan_detection_windows(recording, [Stretch("r1", at(0), at(3600))]))
    spans = [seconds(window.reference_start_ns, window.start_ns, window.end_ns) for window in windows]
    assert spans[:2] == [(0, 120, 850), (730, 850, 1450)]
    assert spans[4:] == [(2530, 2650, 2950), (2830, 2950, 3550), (3430, 3550, 3600)]
    assert [window.healthy for window in windows] == [False, True, True, True, False, True, True]


def test_references_and_training_have_no_incident(dataset) -> None:
    recording = dataset.recording("r1")
    whole = [Stretch("r1", at(0), at(3600))]
    healthy = list(plan_training_windows(recording, whole))
    spans = [(window.reference_start_ns, window.start_ns) for window in plan_detection_windows(recording, whole)]
    for span in [*spans, *((window.reference_start_ns, window.end_ns) for window in healthy)]:
        assert any(stretch.within(*span) == ("r1", *span) for stretch in recording.truth.healthy_stretches)
    assert healthy


def test_no_tested_time_is_learned_from(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, dict.fromkeys(("r1", "r2", "r3"), INCIDENTS))
    for split in (None, "by-time", "by-recording"):
        plan = DetectionPlan.of(dataset, split)
        for number, tested in plan.tested.items():
            for learned in plan.learned[number]:
                assert all(
                    window.recording != learned.recording
                    or window.reference_start_ns >= learned.end_ns
                    or window.end_ns <= learned.reference_start_ns
                    for window in tested
                )


def test_every_recording_is_tested_once_by_default(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, dict.fromkeys(("r1", "r2", "r3"), INCIDENTS))
    name, folds = fold_recordings(dataset)
    assert name == "cross"
    assert sorted(stretch.recording for fold in folds for stretch in fold.test) == ["r1", "r2", "r3"]


def test_a_split_without_a_test_stretch_is_refused(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": INCIDENTS})
    split = dataset.recording_splits["by-time"]
    dataset.recording_splits = {"mine": type(split)(key="time", train=split.train, validation=(), test=())}
    with pytest.raises(DataError, match="has no test stretch"):
        fold_recordings(dataset, "mine")


def test_cuts_have_the_lengths_that_most_incidents_have(dataset) -> None:
    lengths = choose_lengths(dataset.recordings())
    assert (lengths.before_s, lengths.after_s) == (70, 120)
    cuts = cut_recordings(dataset)
    assert cuts is not None
    assert cuts.select_folds(None) == ()
    assert {cut.incident.incident for _, cut in cuts.cuts.values() if cut.incident} == {"r10", "r11", "r12"}


def test_anomalies_without_a_service_are_not_cut(tmp_path: Path) -> None:
    assert cut_recordings(recorded_dataset(tmp_path, {"r1": INCIDENTS}, anomaly=True)) is None
