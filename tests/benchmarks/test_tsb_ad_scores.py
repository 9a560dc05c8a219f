"""The period and the score of the comparison with TSB-AD are theirs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "external" / "tsb_ad_scores.py"


def test_the_period_and_the_score_are_those_of_tsb_ad() -> None:
    spec = importlib.util.spec_from_file_location("tsb_ad_scores", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    steps = np.arange(3000)
    assert script.find_period(np.sin(2 * np.pi * steps / 25)) == 25
    assert script.find_period(np.ones(3000) * steps) == script.DEFAULT_PERIOD
    labels = (steps >= 1000) & (steps < 1100)
    assert script.score(labels, labels.astype(float), 0) == pytest.approx(1)
    assert script.score(labels, steps.astype(float), 0) < 0.1
