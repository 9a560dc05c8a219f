"""Intervals over clusters against hand-computed values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from faultset.evaluators.statistics.clusters import (
    clustered_mean,
    clustered_median,
    clustered_ratio,
    draws,
    resampled_means,
)
from faultset.evaluators.statistics.rates import (
    wilson_interval,
)

VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


def test_few_clusters_are_enumerated():
    means = resampled_means(VALUES, CLUSTERS)
    assert len(means) == 27
    assert np.allclose(np.quantile(means, [0.025, 0.975]), (-0.1979, 0.6396), atol=1e-4)
    estimate = clustered_mean(VALUES, CLUSTERS)
    assert np.allclose((estimate.low, estimate.high), (-0.1979, 0.6396), atol=1e-4)
    assert estimate.method == "bootstrap over 3 clusters, all 27 resamples"


def test_many_clusters_are_sampled_with_a_seed():
    assert np.array_equal(draws(9, seed=4), draws(9, seed=4))
    assert draws(9, seed=4).shape == (2000, 9)


def test_unscored_values_are_left_out_and_counted():
    estimate = clustered_mean([1.0, math.nan, 0.0], ["a", "b", "c"])
    assert (estimate.value, estimate.n) == (0.5, 2)
    assert clustered_mean([math.nan], ["a"]).reason == "no scored episode"


def test_a_perfect_score_does_not_get_an_interval_of_no_width():
    estimate = clustered_mean([1.0] * 8, list("aabbccdd"))
    assert np.allclose((estimate.low, estimate.high), wilson_interval(4, 4))
    assert estimate.method == "Wilson over clusters"


@pytest.mark.parametrize("same", [0.0, 1.0])
def test_what_is_no_share_gets_no_interval_of_shares(same: float):
    estimate = clustered_mean([same] * 8, list("aabbccdd"), shares=False)
    assert (estimate.value, estimate.n, estimate.interval_known) == (same, 8, False)
    assert estimate.reason == "no spread between clusters"


def test_one_cluster_gives_a_value_but_no_interval():
    estimate = clustered_mean([1.0, 0.0], ["a", "a"])
    assert estimate.value == 0.5
    assert not estimate.interval_known
    assert estimate.reason == "one cluster: no interval"


def test_a_median_with_misses_can_have_an_infinite_upper_end():
    estimate = clustered_median([5.0, 7.0, math.inf], ["a", "b", "c"])
    assert estimate.value == 7.0
    assert (estimate.low, estimate.high) == (5.0, math.inf)
    assert clustered_median([], []).reason == "no scored episode"


def test_medians_of_resamples_equal_those_of_lists():
    values, keys = [1.0, 9.0, 4.0, 6.0, math.inf], ["a", "a", "b", "b", "c"]
    members = {"a": [1.0, 9.0], "b": [4.0, 6.0], "c": [math.inf]}
    picks = itertools.product("abc", repeat=3)
    lists = [[value for key in pick for value in members[key]] for pick in picks]
    medians = sorted(sorted(values)[len(values) // 2] for values in lists)
    estimate = clustered_median(values, keys)
    assert estimate.low == medians[math.floor(0.025 * 26)]
    assert estimate.high == medians[math.ceil(0.975 * 26)]


def test_a_ratio_keeps_the_number_of_clusters_in_each_stratum():
    # columns: right on fault, fault, right on healthy, healthy
    counts = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    estimate = clustered_ratio(
        counts, list("abcd"), [True, True, False, False], lambda c: (c[..., 0] / c[..., 1] + c[..., 2] / c[..., 3]) / 2
    )
    assert estimate.value == 0.75
    assert (estimate.low, estimate.high) == (0.5, 1.0)


def test_equal_seeds_give_equal_intervals_whatever_was_computed_before():
    values, keys = list(np.linspace(0, 1, 40)), [i // 4 for i in range(40)]
    first = clustered_mean(values, keys, seed=3)
    clustered_mean(values[:20], keys[:20], seed=3)
    assert clustered_mean(values, keys, seed=3) == first
    assert clustered_mean(values, keys, seed=4) != first
