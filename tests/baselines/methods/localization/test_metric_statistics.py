"""The statistics under the metric localizers agree with direct formulas and with other libraries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines.stats.change_points import run_lengths
from faultset.baselines.stats.energy_distances import energy_distances, permutation_p_values
from faultset.baselines.stats.independence_tests import (
    chi_square,
    correlation_p_value,
    kmeans_bins,
    partial_correlation,
)

# Its stubs know fewer types than it takes.
stats: Any = scipy_stats
BASE = np.array([0.0, 2, 1, -1, 0, 2, 1, -1])
REFERENCE = np.column_stack([10 + BASE, 50 + np.tile([0.0, 0, 1, -1], 2), 20 + BASE, 100 + BASE])
VALUES = np.array([[10.0, 50, 21, 100], [30, 50, 21, 10], [31, 51, 40, 9], [30, 49, 41, 10]])


def pairs_mean(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([abs(x - y) for x in a for y in b]))


def test_energy_distance_is_the_difference_of_mean_distances_between_all_pairs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 3)), rng.integers(0, 3, size=(5, 3)).astype(float)
    expected = [2 * pairs_mean(x, y) - pairs_mean(x, x) - pairs_mean(y, y) for x, y in zip(a.T, b.T, strict=True)]
    assert energy_distances(a, b) == pytest.approx(expected)


def test_energy_distance_has_the_published_values() -> None:
    found = np.sqrt(energy_distances(REFERENCE, VALUES))
    assert found == pytest.approx([4.5962, 0.0, 3.1425, 10.0685], abs=1e-4)


def test_a_p_value_is_the_share_of_labellings_that_reach_the_distance() -> None:
    a, b = np.array([[0.0], [1.0], [2.5]]), np.array([[3.0], [1.5], [7.0]])
    pooled = np.concatenate([a, b])[:, 0]
    observed = energy_distances(a, b)[0]
    reached = [
        energy_distances(pooled[list(chosen), None], np.delete(pooled, chosen)[:, None])[0] >= observed - 1e-12
        for chosen in itertools.combinations(range(6), 3)
    ]
    distance, p = permutation_p_values(a, b, draws=20_000, rng=np.random.default_rng(1))
    assert distance[0] == pytest.approx(observed)
    assert p[0] == pytest.approx(np.mean(reached), abs=0.015)


def test_p_values_are_uniform_where_nothing_changed_and_smallest_where_the_level_did() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(40, 600)), rng.normal(size=(30, 600))
    b[:, 0] += 50
    _, p = permutation_p_values(a, b, rng=rng)
    assert p[0] == pytest.approx(1 / 500)
    assert np.mean(p[1:] <= 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(p[1:] <= 0.5) == pytest.approx(0.5, abs=0.05)


def direct_run_lengths(samples: np.ndarray, hazard: float) -> np.ndarray:
    """One multivariate t at a time, with scatter matrices summed up from scratch for every run."""
    count, dims = samples.shape
    found = np.zeros((count, count + 1))
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
            found[row, length] = value
    return found


def test_run_lengths_are_those_of_the_textbook_recursion() -> None:
    rng = np.random.default_rng(3)
    samples = np.vstack([rng.normal(0, 0.2, (15, 3)), rng.normal(1, 0.2, (10, 3))])
    found = run_lengths(samples, hazard=0.02)
    np.testing.assert_allclose(found.probability, direct_run_lengths(samples, 0.02), atol=1e-9)
    assert found.probability.sum(axis=1) == pytest.approx(1.0)


def test_a_change_of_level_is_dated_to_the_sample_and_nothing_before_it() -> None:
    rng = np.random.default_rng(4)
    samples = rng.normal(0, 0.2, (80, 5))
    samples[50:, :2] += 1.2
    runs = run_lengths(samples)
    assert (runs.begun_since(40)[40:50] < 0.5).all()
    assert (runs.begun_since(40)[52:] > 0.9).all()
    assert runs.most_likely[70] == 71 - 50


def test_what_comes_later_does_not_change_earlier_run_lengths() -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(0, 0.3, (40, 4))
    later = samples.copy()
    later[25:] = 100.0
    early, late = run_lengths(samples[:25]).probability, run_lengths(later).probability
    np.testing.assert_allclose(late[:25, :26], early)
    assert (late[:25, 26:] == 0).all()


def test_bins_are_those_of_scikit_learn() -> None:
    from sklearn.preprocessing import KBinsDiscretizer

    rng = np.random.default_rng(6)
    series = np.column_stack([rng.normal(size=200), rng.exponential(size=200), rng.integers(0, 9, 200)]).astype(
        np.float64
    )
    expected = KBinsDiscretizer(5, encode="ordinal", strategy="kmeans").fit_transform(series)
    assert (kmeans_bins(series) == expected).mean() > 0.995
    assert (kmeans_bins(np.full((5, 1), 3.0)) == 0).all()


def test_chi_square_is_pearsons_and_adds_up_over_strata() -> None:
    rng = np.random.default_rng(7)
    x, y, z = rng.integers(0, 2, 300), rng.integers(0, 4, 300), rng.integers(0, 3, 300)
    y = np.where(x == 1, np.minimum(y + rng.integers(0, 2, 300), 3), y)
    table = np.array([[np.sum((x == a) & (y == b)) for b in range(4)] for a in range(2)])
    expected = stats.chi2_contingency(table, correction=False)
    assert chi_square(x, y) == pytest.approx((expected.pvalue, expected.statistic))
    parts = [chi_square(x[z == c], y[z == c])[1] for c in range(3)]
    p, statistic = chi_square(x, y, [z])
    assert statistic == pytest.approx(sum(parts))
    assert p == pytest.approx(stats.chi2.sf(sum(parts), 9))


def test_a_series_that_takes_one_value_is_independent_of_everything() -> None:
    x = np.array([0, 1, 0, 1])
    assert chi_square(x, np.zeros(4, dtype=np.int64)) == (1.0, 0.0)


def test_partial_correlation_is_read_from_the_inverse_covariance() -> None:
    rng = np.random.default_rng(8)
    data = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 4))
    precision = np.linalg.inv(np.cov(data.T))
    expected = -precision[0, 1] / np.sqrt(precision[0, 0] * precision[1, 1])
    found = partial_correlation(data[:, 0], data[:, 1], data[:, 2:])
    assert found == pytest.approx(expected)
    assert partial_correlation(data[:, 0], np.ones(200), data[:, 2:]) == 0.0


def test_the_p_value_of_a_correlation_is_close_to_that_of_the_t_test() -> None:
    rng = np.random.default_rng(9)
    x, y = rng.normal(size=60), rng.normal(size=60)
    y += 0.3 * x
    expected = stats.pearsonr(x, y)
    assert float(correlation_p_value(float(expected.statistic), 60)) == pytest.approx(
        float(expected.pvalue),
        rel=0.1,
    )
    assert float(correlation_p_value(0.99, 5, given=2)) == 1.0
