"""Tails: the fit, the quantile, and limits that learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.stats.change_points import Spot, fit_pareto, tail_quantile


@pytest.mark.parametrize(("gamma", "expected"), [(0.1, 16.9857), (0.0, 15.9915)])
def test_the_quantile_is_that_of_the_paper(gamma: float, expected: float) -> None:
    assert tail_quantile(1e-3, 10, gamma, 2, 1000, 20) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("gamma", [-0.3, 0.0, 0.2, 0.5, 0.9])
def test_the_fit_is_as_likely_as_the_one_of_scipy(gamma: float) -> None:
    excesses = np.asarray(stats.genpareto.rvs(gamma, scale=2, size=1000, random_state=7))
    shape, scale = fit_pareto(excesses)
    theirs = stats.genpareto.fit(excesses, floc=0)
    ours = stats.genpareto.logpdf(excesses, shape, 0, scale).sum()
    assert ours > stats.genpareto.logpdf(excesses, *theirs).sum() - 0.01
    assert shape == pytest.approx(theirs[0], abs=0.02)


@pytest.mark.parametrize("excesses", [[], [3.0], [0.0, 0.0], [2.0, 2.0, 2.0]])
def test_a_tail_of_nearly_nothing_is_exponential_or_finite(excesses: list[float]) -> None:
    shape, scale = fit_pareto(np.array(excesses))
    assert np.isfinite(shape)
    assert scale > 0


@pytest.mark.parametrize("level", [1e-2, 1e-3, 1e-4])
def test_exponential_data_exceeds_the_limit_at_the_wanted_rate(level: float) -> None:
    rng = np.random.default_rng(1)
    rates = []
    for _ in range(20):
        spot = Spot(level, otherwise=3.0, initial=0.95).start(rng.exponential(size=5000))
        rates.append(float(np.exp(-spot.limit)))
    assert np.median(rates) == pytest.approx(level, rel=0.5)


def test_the_limit_learns_from_what_stays_below_it_and_from_nothing_else() -> None:
    rng = np.random.default_rng(2)
    spot = Spot(1e-4, otherwise=3.0).start(rng.exponential(size=2000))
    before = spot.limit
    spot.learn(np.full(100, 10 * before))
    assert spot.limit == before
    for _ in range(40):
        spot.learn(2.0 * rng.exponential(size=100))
    assert spot.limit > 1.2 * before


def test_with_too_few_excesses_the_limit_is_the_other_one() -> None:
    assert Spot(1e-4, otherwise=4.5).start(np.zeros(1000)).limit == 4.5
    assert Spot(1e-4, otherwise=4.5).start(np.zeros(0)).limit == 4.5
