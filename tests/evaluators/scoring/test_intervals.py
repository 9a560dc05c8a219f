"""Intervals against published values, and their coverage in a small simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.evaluators.scoring.intervals import (
    Spread,
    cluster_sums,
    clustered_mean,
    clustered_median,
    clustered_ratio,
    event_rate,
    mean_and_spread,
    pooled,
    share_interval,
    wilson,
)


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [(10, 13, (0.4974, 0.9182)), (9, 13, (0.4237, 0.8732)), (13, 13, (0.7719, 1.0)), (2, 13, (0.0433, 0.4223))],
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


VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


def test_sums_are_of_clusters_in_order_of_first_appearance():
    assert cluster_sums(VALUES, CLUSTERS).tolist() == [2.0, 1.0, 0.0]
    assert cluster_sums([VALUES, VALUES], CLUSTERS).shape == (2, 3)


def test_the_variance_of_a_mean_is_that_of_cluster_totals():
    mean, spread = mean_and_spread(VALUES, CLUSTERS)
    residuals = np.array([2 - 3 * 0.375, 1 - 2 * 0.375, 0 - 3 * 0.375])
    assert mean == 0.375
    assert math.isclose(spread.variance, 3 / 2 * (residuals**2).sum() / 8**2)
    assert math.isclose(spread.clusters, 8**2 / (9 + 4 + 9))


def test_clusters_that_repeat_themselves_count_once():
    once = clustered_mean([1.0, 0.0, 1.0, 0.0, 1.0, 1.0], list("abcdef"))
    repeated = clustered_mean([1.0, 0.0, 1.0, 0.0, 1.0, 1.0] * 4, list("abcdef") * 4)
    assert np.allclose((once.low, once.high), (repeated.low, repeated.high))


def test_episodes_of_their_own_get_nearly_the_interval_of_independent_trials():
    estimate = clustered_mean([1.0] * 30 + [0.0] * 20, list(range(50)))
    assert np.allclose((estimate.low, estimate.high), wilson(0.6, 50), atol=0.005)


def test_unscored_values_are_left_out_and_counted():
    estimate = clustered_mean([1.0, math.nan, 0.0], ["a", "b", "c"])
    assert (estimate.value, estimate.n) == (0.5, 2)
    assert clustered_mean([math.nan], ["a"]).reason == "no scored episode"


@pytest.mark.parametrize("same", [0.0, 0.5, 1.0])
def test_a_share_on_which_all_clusters_agree_has_an_interval_with_clusters_as_trials(same: float):
    estimate = clustered_mean([same] * 8, list("aabbccdd"))
    assert np.allclose((estimate.low, estimate.high), wilson(same, 4))


def test_bounds_scale_the_interval():
    share = clustered_mean(VALUES, CLUSTERS)
    seconds = clustered_mean([60 * value for value in VALUES], CLUSTERS, bounds=(0.0, 60.0))
    assert np.allclose((seconds.low, seconds.high), (60 * share.low, 60 * share.high))


def test_an_interval_stays_within_its_bounds():
    estimate = clustered_mean([1.0] * 11 + [0.0], list(range(12)))
    assert 0 <= estimate.low < estimate.value < estimate.high <= 1


@pytest.mark.parametrize("same", [0.0, 1.0])
def test_what_has_no_bounds_and_no_spread_gets_no_interval(same: float):
    estimate = clustered_mean([same] * 8, list("aabbccdd"), bounds=None)
    assert (estimate.value, estimate.n, estimate.interval_known) == (same, 8, False)
    assert estimate.reason == "no spread between clusters"


def test_what_has_no_bounds_has_students_interval():
    estimate = clustered_mean([1.0, 2.0, 4.0, 9.0], list("abcd"), bounds=None)
    half = 3.182446 * np.std([1, 2, 4, 9], ddof=1) / 2
    assert np.allclose((estimate.low, estimate.high), (4 - half, 4 + half), atol=1e-5)


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


def test_a_medians_interval_holds_the_values_that_half_of_the_episodes_may_lie_below():
    estimate = clustered_median([float(value) for value in range(1, 101)], list(range(100)))
    # by the share below: Wilson of 41/100 ends above one half, that of 40/100 below it
    assert (estimate.value, estimate.low) == (51.0, 41.0)
    assert 59 <= estimate.high <= 61


def test_a_ratio_weighs_episodes_by_their_whole():
    estimate = clustered_ratio([1, 0, 3], [1, 3, 4], list("abc"))
    assert estimate.value == 0.5
    assert 0 <= estimate.low < 0.5 < estimate.high <= 1
    assert clustered_ratio([0, 0], [0, 0], list("ab")).reason == "undefined on these episodes"
    assert clustered_ratio([], [], []).reason == "no scored episode"


def test_strata_of_a_ratio_are_given_numbers_and_not_chance():
    parts, wholes, keys = [1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1], list("abcdef")
    together = clustered_ratio(parts, wholes, keys)
    apart = clustered_ratio(parts, wholes, keys, strata=[True] * 4 + [False] * 2)
    assert apart.value == together.value
    assert apart.high - apart.low < together.high - together.low


def test_events_that_come_at_random_have_jeffreys_interval():
    # quantiles of a gamma distribution of shape 3.5 over twelve hours
    estimate = event_rate([1, 1, 1, 0], [3.0] * 4, list("abcd"))
    assert estimate.value == 0.25
    assert np.allclose((estimate.low, estimate.high), (0.0704, 0.6672), atol=2e-4)


def test_quiet_hours_leave_an_upper_end():
    estimate = event_rate([0, 0], [5.0, 5.0], list("ab"))
    assert estimate.low == 0.0
    assert np.isclose(estimate.high, 0.2512, atol=1e-4)
    assert event_rate([], [], []).reason == "no observed time without a fault"


def test_events_that_come_in_bursts_have_a_wider_interval():
    even = event_rate([4] * 10, [1.0] * 10, list(range(10)))
    bursts = event_rate([20, 20] + [0] * 8, [1.0] * 10, list(range(10)))
    assert even.value == bursts.value
    assert bursts.high - bursts.low > 2 * (even.high - even.low)
