"""Run lengths compared with the textbook recursion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines.stats.change_points import Spot, fit_pareto, run_lengths, tail_quantile

# The stubs are too narrow.
stats: Any = scipy_stats


def direct_run_lengths(samples: np.ndarray, hazard: float) -> np.ndarray:
    """Compute the recursion with one multivariate t and a new scatter matrix per run."""
    count, dims = samples.shape
    result = np.zeros((count, count + 1))
    weight = {0: 1.0}
    for row in range(count):
        grown = {}
        for length, probability in weight.items():
            run = samples[row - length : row]
            kappa = 1.0 + length
            center = run.sum(axis=0) / kappa
            scatter = np.eye(dims) + run.T @ run - kappa * np.outer(center, center)
            freedom = 2.0 + length
            shape = scatter * (kappa + 1) / (kappa * freedom)
            grown[length + 1] = probability * stats.multivariate_t.pdf(samples[row], center, shape, df=freedom)
        total = sum(grown.values())
        weight = {0: hazard} | {length: (1 - hazard) * value / total for length, value in grown.items()}
        for length, value in weight.items():
            result[row, length] = value
    return result


def test_run_lengths_are_those_of_the_textbook_recursion() -> None:
    rng = np.random.default_rng(3)
    samples = np.vstack([rng.normal(0, 0.2, (15, 3)), rng.normal(1, 0.2, (10, 3))])
    result = run_lengths(samples, hazard=0.02)
    np.testing.assert_allclose(result.probability, direct_run_lengths(samples, 0.02), atol=1e-9)
    assert result.probability.sum(axis=1) == pytest.approx(1.0)


def test_a_change_of_level_is_dated_to_the_sample_and_nothing_before_it() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.2, (80, 5))
    samples[50:, :2] += 1.2
    runs = run_lengths(samples)
    assert (runs.compute_start_probability(40)[40:50] < 0.5).all()
    assert (runs.compute_start_probability(40)[52:] > 0.9).all()
    assert runs.probability[70].argmax() == 71 - 50


def test_what_comes_later_does_not_change_earlier_run_lengths() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(0, 0.3, (40, 4))
    later = samples.copy()
    later[25:] = 100.0
    early, late = run_lengths(samples[:25]).probability, run_lengths(later).probability
    np.testing.assert_allclose(late[:25, :26], early)
    assert (late[:25, 26:] == 0).all()


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
        spot = Spot(level, fallback=3.0, initial=0.95).start(rng.exponential(size=5000))
        rates.append(float(np.exp(-spot.limit)))
    assert np.median(rates) == pytest.approx(level, rel=0.5)


def test_the_limit_learns_from_what_stays_below_it_and_from_nothing_else() -> None:
    rng = np.random.default_rng(2)
    spot = Spot(1e-4, fallback=3.0).start(rng.exponential(size=2000))
    before = spot.limit
    spot.learn(np.full(100, 10 * before))
    assert spot.limit == before
    for _ in range(40):
        spot.learn(2.0 * rng.exponential(size=100))
    assert spot.limit > 1.2 * before


def test_with_too_few_excesses_the_limit_is_the_other_one() -> None:
    assert Spot(1e-4, fallback=4.5).start(np.zeros(1000)).limit == 4.5
    assert Spot(1e-4, fallback=4.5).start(np.zeros(0)).limit == 4.5
