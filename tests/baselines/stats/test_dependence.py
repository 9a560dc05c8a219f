"""Measures of dependence compared with published values and libraries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines.stats.dependence import (
    chi_square,
    correlation_p_value,
    kmeans_bins,
    knn_information,
    lagged_links,
    partial_correlation,
    permutation_p_values,
    ranked_samples,
)

BASE = np.array([0.0, 2, 1, -1, 0, 2, 1, -1])
REFERENCE = np.column_stack([10 + BASE, 50 + np.tile([0.0, 0, 1, -1], 2), 20 + BASE, 100 + BASE])
VALUES = np.array([[10.0, 50, 21, 100], [30, 50, 21, 10], [31, 51, 40, 9], [30, 49, 41, 10]])


def pairs_mean(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([abs(x - y) for x in a for y in b]))


def test_energy_distance_is_the_difference_of_mean_distances_between_all_pairs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 3)), rng.integers(0, 3, size=(5, 3)).astype(float)
    expected = [2 * pairs_mean(x, y) - pairs_mean(x, x) - pairs_mean(y, y) for x, y in zip(a.T, b.T, strict=True)]
    assert ranked_samples(a, b).distances == pytest.approx(expected)


def test_energy_distance_has_the_published_values() -> None:
    result = np.sqrt(ranked_samples(REFERENCE, VALUES).distances)
    assert result == pytest.approx([4.5962, 0.0, 3.1425, 10.0685], abs=1e-4)


def test_a_p_value_is_the_share_of_labellings_that_reach_the_distance() -> None:
    a, b = np.array([[0.0], [1.0], [2.5]]), np.array([[3.0], [1.5], [7.0]])
    pooled = np.concatenate([a, b])[:, 0]
    observed = ranked_samples(a, b).distances[0]
    reached = [
        ranked_samples(pooled[list(chosen), None], np.delete(pooled, chosen)[:, None]).distances[0] >= observed - 1e-12
        for chosen in itertools.combinations(range(6), 3)
    ]
    p = permutation_p_values(ranked_samples(a, b), draws=20_000, rng=np.random.default_rng(1))
    assert p[0] == pytest.approx(np.mean(reached), abs=0.015)


def test_p_values_are_uniform_where_nothing_changed_and_smallest_where_the_level_did() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(40, 600)), rng.normal(size=(30, 600))
    b[:, 0] += 50
    p = permutation_p_values(ranked_samples(a, b), rng=rng)
    assert p[0] == pytest.approx(1 / 500)
    assert np.mean(p[1:] <= 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(p[1:] <= 0.5) == pytest.approx(0.5, abs=0.05)


# The stubs are too narrow.
stats: Any = scipy_stats


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
    result = partial_correlation(data[:, 0], data[:, 1], data[:, 2:])
    assert result == pytest.approx(expected)
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


@pytest.mark.parametrize("neighbours", [2, 3, 5])
def test_batched_information_equals_scikit_learn(neighbours: int) -> None:
    from sklearn.feature_selection import mutual_info_regression

    rng = np.random.default_rng(2)
    target = rng.normal(size=40)
    series = np.outer(np.linspace(0, 2, 25), target) + rng.normal(size=(25, 40))
    expected = mutual_info_regression(series.T, target, n_neighbors=neighbours, random_state=0)
    assert knn_information(series, target, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)
    repeated = np.tile(target, (25, 1))
    assert knn_information(series, repeated, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)


def test_information_needs_more_samples_than_neighbours() -> None:
    assert knn_information(np.ones((2, 3)), np.ones(3), neighbours=3).tolist() == [0, 0]


def test_a_delayed_cause_is_linked_and_a_cause_of_the_cause_is_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(400, 4))
    series = noise.copy()
    for row in range(2, 400):
        series[row, 1] += 0.9 * series[row - 2, 0]
        series[row, 2] += 0.9 * series[row - 1, 1]
    links = lagged_links(series, lags=3)
    assert (0, 2) in links.causes[1]
    assert (1, 1) in links.causes[2]
    assert {(0, 1), (1, 2)} <= links.links
    assert (0, 2) not in links.links
    assert not any(3 in link for link in links.links)


def test_links_within_a_step_have_no_direction_and_constants_none() -> None:
    rng = np.random.default_rng(4)
    series = rng.normal(size=(120, 3))
    series[:, 1] += series[:, 0]
    series[:, 2] = 5.0
    assert lagged_links(series, lags=2).links == {(0, 1), (1, 0)}
    assert lagged_links(series[:5], lags=2).links == frozenset()
