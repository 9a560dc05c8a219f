"""The tables of a dataset's leaderboard page."""

from __future__ import annotations

from pathlib import Path

from benchmarks.dataset_leaderboard import format_page
from faultset.evaluators import Evaluation, evaluate
from tests.evaluators.conftest import make_row, make_truth
from tests.evaluators.recordings.recording_samples import recorded_dataset


def test_recordings_have_columns_for_the_threshold_from_training(tmp_path: Path) -> None:
    dataset = recorded_dataset(tmp_path, {"r1": [(400, 120), (2000, 150)]})
    page = format_page(evaluate(dataset, ["ksigma"], workers=1, tasks=["detection"]))
    (head,) = (line for line in page.splitlines() if line.startswith("| # |"))
    assert [f"{name}, train-quantile(0.995)" in head for name in ("recall", "precision", "false alarms / day")] == [
        True
    ] * 3


def test_each_application_has_a_line_about_its_candidates() -> None:
    truths = [make_truth("e1", app="shop"), make_truth("e2", app="bank")]
    rows = [make_row(truth, ranking=(("b", 1.0),), protocol="oracle") for truth in truths]
    lines = format_page(Evaluation(rows=tuple(rows))).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("- bank: "))
    assert lines[at : at + 2] == [
        f"- {app}: {len(truths[0].candidates)} candidates; 1 is a cause in some episode: b 100%"
        for app in ("bank", "shop")
    ]
