"""Tail probabilities equal those of scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from faultset.collector.verdicts.exact_tests import (
    compute_binomial_cdf,
    compute_binomial_interval,
    compute_fisher_p_value,
    compute_normal_sf,
)


def test_tails_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for z in (-40.0, -1.5, 0.0, 2.0, 12.0, 37.0):
        assert compute_normal_sf(z) == pytest.approx(stats.norm.sf(z), rel=1e-9)
    fisher_exact: Any = stats.fisher_exact
    for number in range(200):
        trials = int(rng.integers(1, 2000))
        successes = int(rng.integers(0, trials + 1))
        scipy_p = stats.binomtest(successes, trials, 0.9, alternative="less").pvalue
        assert compute_binomial_cdf(successes, trials, 0.9) == pytest.approx(scipy_p, rel=1e-8, abs=1e-290)
        if number % 5 == 0:  # bisection takes a hundred times as long
            interval = stats.binomtest(successes, trials).proportion_ci(0.95)
            bounds = (interval.low, interval.high)
            assert compute_binomial_interval(successes, trials) == pytest.approx(bounds, abs=1e-12)
        table = rng.integers(0, rng.choice([3, 50, 5000]), (2, 2)).tolist()
        scipy_p = fisher_exact(np.flip(table, axis=0), alternative="greater").pvalue
        assert compute_fisher_p_value(table) == pytest.approx(scipy_p, rel=1e-7, abs=1e-290), table


def test_the_interval_of_none_and_all_ends_at_0_and_1() -> None:
    assert compute_binomial_interval(0, 7)[0] == 0.0
    assert compute_binomial_interval(7, 7)[1] == 1.0


def test_many_more_errors_are_significant_also_among_a_million_requests() -> None:
    assert compute_fisher_p_value([[5, 1995], [60, 940]]) < 1e-20
    assert compute_fisher_p_value([[1000, 999_000], [1150, 998_850]]) < 0.01
    assert compute_fisher_p_value([[1000, 1000], [100, 900]]) == pytest.approx(1.0)
