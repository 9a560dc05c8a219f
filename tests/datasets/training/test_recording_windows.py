from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faultset.core.errors import UsageError
from faultset.datasets.dataset import open_dataset
from faultset.datasets.recordings import Recording, Stretch, WindowView, cut_view, window_views
from faultset.datasets.training import FeatureColumns, RecordingWindows, windows
from tests.datasets.recorded_samples import SECOND, at


@pytest.fixture
def columns(recording: Recording[Any]) -> FeatureColumns:
    return FeatureColumns.of(
        window_views(recording.view, recording.view.segments, 600), step_s=20, modalities=("metrics",)
    )


def crossings(windows: RecordingWindows, border_s: float) -> int:
    """Return how many windows contain a time."""
    length_ns = windows.length * 20 * SECOND
    ends = np.concatenate([batch.ends_ns for batch in windows.batches()])
    return int(((ends - length_ns < at(border_s)) & (ends > at(border_s))).sum())


def test_windows_never_cross_a_split_a_segment_or_a_void(
    recording: Recording[Any], columns: FeatureColumns, recorded_root: Any
) -> None:
    split = open_dataset(recorded_root).recording_splits["by-time"]
    sides = [
        RecordingWindows([recording], columns, side, length=10) for side in (split.train, split.validation, split.test)
    ]
    ends = [{int(end) for batch in windows.batches() for end in batch.ends_ns} for windows in sides]
    assert not ends[0] & ends[1]
    assert not ends[1] & ends[2]
    everything = RecordingWindows([recording], columns, length=10)
    for border_s in (1800, 2400, 2650, 2700):
        assert crossings(everything, border_s) == 0
    assert crossings(everything, 1200) > 0
    assert len(everything) == sum(map(len, everything.batches()))


def test_labels_are_one_during_incidents(recording: Recording[Any], columns: FeatureColumns) -> None:
    windows = RecordingWindows([recording], columns, length=1)
    steps = {
        int(batch.ends_ns[row]): int(batch.labels[row, 0]) for batch in windows.batches() for row in range(len(batch))
    }
    faulty = {end for end, label in steps.items() if label == 1}
    assert {
        end for end in steps if at(500) < end <= at(810) or at(1000) < end <= at(1130) or at(2500) < end <= at(2710)
    } == faulty
    healthy = RecordingWindows([recording], columns, length=5, healthy=True)
    assert {label for batch in healthy.batches() for label in batch.labels.ravel().tolist()} == {0}


def test_blocks_give_the_windows_of_one_block(
    recording: Recording[Any], columns: FeatureColumns, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RecordingWindows([recording], columns, length=8, stride=3).arrays()
    monkeypatch.setattr(windows, "BLOCK_S", 200.0)
    blocks = RecordingWindows([recording], columns, length=8, stride=3).arrays()
    for first, second in zip(whole, blocks, strict=True):
        assert np.allclose(first, second)
    shuffled = list(RecordingWindows([recording], columns, length=8, stride=3).batches(seed=1))
    assert sorted(int(end) for batch in shuffled for end in batch.ends_ns) == sorted(whole[2].tolist())


def test_windows_that_cannot_be_made_are_refused(recording: Recording[Any], columns: FeatureColumns) -> None:
    with pytest.raises(UsageError, match="a window has 900 steps of 20 s, but all stretches are shorter"):
        RecordingWindows([recording], columns, length=900)
    with pytest.raises(UsageError, match="must be at least 1, got 0 and 1"):
        RecordingWindows([recording], columns, length=0)
    with pytest.raises(UsageError, match="columns per service need a healthy reference"):
        RecordingWindows([recording], FeatureColumns.per_service())


def test_a_window_in_memory_reads_like_one_in_files(recording: Recording[Any], tmp_path: Any) -> None:
    stretch = Stretch("r1", at(570), at(640))
    memory = WindowView(recording.view, stretch, at(600))
    files = cut_view(
        recording.view,
        tmp_path,
        start_ns=stretch.start_ns,
        end_ns=stretch.end_ns,
        reference_end_ns=at(600),
        episode="r1",
    )
    assert memory.context == files.context
    for table in files.tables:
        assert memory.table(table).to_pylist() == files.table(table).to_pylist()
    assert memory.table("metrics", ["value"], [("kind", "==", "gauge")]).num_rows == 14
    assert np.array_equal(memory.silent_steps(SECOND), files.silent_steps(SECOND))
    # the window in memory also has the sample before it
    assert memory.wide(5)["geo", "level"].equals(files.wide(5)["geo", "level"])
