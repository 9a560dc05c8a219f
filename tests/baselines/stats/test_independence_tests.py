"""Tests of independence against libraries and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from faultset.baselines.stats.dependence import (
    chi_square,
    correlation_p_value,
    kmeans_bins,
    partial_correlation,
)

# Its stubs know fewer types than it takes.
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
