"""Check the contract of the metric, and its values in a leaderboard."""

from __future__ import annotations

import pandas as pd
import pytest

from faultset.datasets.examples import write_example_dataset
from faultset.evaluators import read_truths, score
from faultset.evaluators.testing import check_scorer


def test_the_metric_meets_the_contract() -> None:
    check_scorer("search_effort")


def test_the_metric_is_in_the_leaderboard(tmp_path) -> None:
    write_example_dataset(tmp_path / "data", episodes=2, seed=1, baseline_s=20, fault_s=20)
    blank = score(tmp_path / "data", answers(tmp_path / "data", best=False))
    right = score(tmp_path / "data", answers(tmp_path / "data", best=True))
    assert blank.leaderboard("localization")["search_effort"].tolist() == [1.0]
    assert right.leaderboard("localization")["search_effort"].tolist() == [0.0]
    assert right.tables[0].floor["search_effort"].value == pytest.approx(0.5)


def answers(dataset, *, best: bool) -> pd.DataFrame:
    """Name the true cause of every fault episode, or nothing."""
    truths = [truth for truth in read_truths(dataset) if truth.causes]
    return pd.DataFrame(
        {
            "episode": [truth.episode for truth in truths],
            "baseline": "mine",
            "task": "localization",
            "ranking": [[truth.causes[0][0]] if best else [] for truth in truths],
        }
    )
