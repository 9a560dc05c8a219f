"""Intervals against published values, and their coverage in a small simulation."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.evaluators.statistics.clusters import clustered_mean
from faultset.evaluators.statistics.intervals import Spread, pooled, share_interval, wilson


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [
        (10, 13, (0.4974, 0.9182)),
        (9, 13, (0.4237, 0.8732)),
        (13, 13, (0.7719, 1.0)),
        (2, 13, (0.0433, 0.4223)),
    ],
)
def test_wilson(k: int, n: int, expected: tuple[float, float]):
    assert np.allclose(wilson(k / n, n), expected, atol=1e-4)


def test_less_certain_estimates_have_wider_intervals():
    widths = []
    for variance in (0.001, 0.01, 0.03):
        low, high = share_interval(0.7, Spread(variance=variance, clusters=12.0, df=11.0))
        widths.append(high - low)
    assert widths == sorted(widths)


def test_degrees_of_freedom_of_two_halves_are_those_of_welch_and_satterthwaite():
    both = pooled(Spread(variance=4.0, clusters=10, df=9.0), Spread(variance=1.0, clusters=6, df=5.0))
    assert both.variance == 5.0
    assert np.isclose(both.df, 25 / (16 / 9 + 1 / 5))


@pytest.mark.parametrize("clusters", [6, 12, 40])
def test_intervals_of_shares_hold_the_truth_about_nineteen_times_in_twenty(clusters: int):
    rng = np.random.default_rng(7)
    held = []
    for _ in range(600):
        truth = rng.uniform(0.05, 0.95)
        keys = np.repeat(np.arange(clusters), rng.integers(1, 5, clusters))
        chances = rng.beta(2.3 * truth, 2.3 * (1 - truth), clusters)[keys]
        estimate = clustered_mean((rng.random(len(keys)) < chances).astype(float).tolist(), keys.tolist())
        held.append(estimate.low <= truth <= estimate.high)
    assert 0.92 <= np.mean(held) <= 0.985
