"""Predictions for one more system."""

from __future__ import annotations

import math

import numpy as np

from faultset.evaluators.statistics.systems import prediction_interval

VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


def test_a_prediction_for_one_more_system_needs_three():
    from scipy import stats

    values = [0.5, 0.7, 0.6, 0.4]
    estimate = prediction_interval(values)
    half = float(stats.t.ppf(0.975, 3) * np.std(values, ddof=1) * math.sqrt(1 + 1 / 4))
    assert np.allclose((estimate.value, estimate.low, estimate.high), (0.55, 0.55 - half, 0.55 + half))
    two = prediction_interval([0.5, 0.7])
    assert (two.value, two.interval_known) == (0.6, False)
    assert two.reason == "2 systems; a prediction needs 3 or more"
    assert prediction_interval([math.nan]).reason == "no system was scored"
