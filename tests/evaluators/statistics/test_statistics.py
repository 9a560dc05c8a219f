"""Intervals and tests against published or hand-computed values."""

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
from faultset.evaluators.statistics.comparison import holm, mcnemar_exact, paired_difference, sign_flip
from faultset.evaluators.statistics.rates import (
    hourly_rate,
    poisson_interval,
    wilson_interval,
)
from faultset.evaluators.statistics.systems import prediction_interval

VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


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
    assert np.allclose(wilson_interval(k, n), expected, atol=1e-4)


def test_poisson_rates_keep_an_upper_end_without_events():
    assert np.allclose((3 / 12, *poisson_interval(3, 12)), (0.25, 0.0516, 0.7306), atol=1e-4)
    assert np.allclose(poisson_interval(0, 10), (0.0, 0.3689), atol=1e-4)
    assert hourly_rate(0, 0.0).reason == "no observed time without a fault"


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


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [([1, 0, 1, 0.5], [1, 0, 1, 0.5], 0.0), ([1] * 4, [0] * 4, 1.0), ([0] * 4, [1] * 4, -1.0)],
)
def test_a_difference_that_is_the_same_everywhere_has_no_interval(first, second, value):
    difference = paired_difference(first, second, list("abcd")).difference
    assert (difference.value, difference.n, difference.interval_known) == (value, 4, False)
    assert difference.method == ""


def test_differences_that_cancel_out_have_an_interval_on_both_sides():
    difference = paired_difference([1, 0, 1, 0], [0, 1, 0, 1], list("abcd")).difference
    assert difference.value == 0
    assert difference.low < 0 < difference.high


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


def test_mcnemar_counts_only_discordant_episodes():
    assert np.allclose((mcnemar_exact(6, 1).p, mcnemar_exact(6, 1).mid_p), (0.125, 0.0703), atol=1e-4)
    assert math.isclose(mcnemar_exact(4, 0).p, 0.125)
    assert mcnemar_exact(5, 0).p > 0.05 > mcnemar_exact(6, 0).p
    assert math.isnan(mcnemar_exact(0, 0).p)


def test_sign_flips_claim_nothing_below_six_clusters():
    five = sign_flip([1.0] * 5, list("abcde"))
    assert math.isnan(five.p)
    assert five.reason == "5 clusters; a test needs 6"
    assert math.isclose(sign_flip([1.0] * 6, list("abcdef")).p, 2 / 2**6)
    assert math.isnan(sign_flip([0.0] * 6, list("abcdef")).p)


def test_a_paired_difference_has_an_interval_and_a_test():
    keys = list("abcdef")
    paired = paired_difference([1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1], keys)
    assert math.isclose(paired.difference.value, 5 / 6)
    assert paired.test.p == 2 * 2 / 2**6


def test_holm_is_the_one_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    values = [0.01, 0.04, 0.03, 0.2, 0.011]
    assert np.allclose(holm(values), np.asarray(multipletests(values, method="holm")[1], dtype=float))
    assert np.allclose(holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06])
    mixed = holm([0.01, math.nan, 0.04])
    assert mixed[0] == 0.02
    assert math.isnan(mixed[1])


def test_mcnemar_is_given_only_where_it_may_be():
    keys = list("abcdefgh")
    right, wrong = [1.0] * 8, [0.0] * 7 + [1.0]
    paired = paired_difference(right, wrong, keys)
    assert (paired.only_first, paired.only_second) == (7, 0)
    assert math.isclose(paired.mcnemar.p, 2 / 2**7)
    repeated = paired_difference(right, wrong, ["a", *list("abcdefg")])
    assert repeated.mcnemar.reason == "problems are repeated; the clustered test counts"
    assert paired_difference([0.5] * 8, wrong, keys).mcnemar.reason == "ties or seeds make fractions"


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


def test_equal_seeds_give_equal_intervals_whatever_was_computed_before():
    values, keys = list(np.linspace(0, 1, 40)), [i // 4 for i in range(40)]
    first = clustered_mean(values, keys, seed=3)
    clustered_mean(values[:20], keys[:20], seed=3)
    assert clustered_mean(values, keys, seed=3) == first
    assert clustered_mean(values, keys, seed=4) != first
