"""The tables of a dataset's leaderboard page."""

from __future__ import annotations

from pathlib import Path

from benchmarks.dataset_leaderboard import format_page
from faultset.evaluators import evaluate
from tests.evaluators.recordings.recording_samples import recorded_dataset


def test_recordings_have_columns_for_the_threshold_from_training(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": [(400, 120), (2000, 150)]})
    page = format_page(evaluate(dataset, ["ksigma"], workers=1, tasks=["detection"]))
    (head,) = (line for line in page.splitlines() if line.startswith("| # |"))
    assert [f"{name}, train-quantile(0.995)" in head for name in ("recall", "precision", "false alarms / day")] == [
        True
    ] * 3
