"""Paired tests against published or hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.evaluators.scoring.intervals import wilson
from faultset.evaluators.scoring.paired_tests import (
    balanced_accuracy,
    clusters_needed,
    holm,
    matthews_correlation,
    mcnemar_exact,
    paired_difference,
    prediction_interval,
    sign_flip,
)


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


def test_mcnemar_counts_only_discordant_episodes():
    assert mcnemar_exact(6, 1).p == pytest.approx(0.125)
    assert math.isclose(mcnemar_exact(4, 0).p, 0.125)
    assert mcnemar_exact(5, 0).p > 0.05 > mcnemar_exact(6, 0).p
    assert math.isnan(mcnemar_exact(0, 0).p)


def test_sign_flips_claim_nothing_below_six_clusters():
    five = sign_flip([1.0] * 5, list("abcde"))
    assert math.isnan(five.p)
    assert five.reason == "5 clusters; a test needs 6"
    assert math.isclose(sign_flip([1.0] * 6, list("abcdef")).p, 2 / 2**6)
    assert math.isnan(sign_flip([0.0] * 6, list("abcdef")).p)


def test_the_interval_of_a_difference_of_shares_stays_within_one():
    difference = paired_difference([1, 0, 0, 0], [0, 0, 0, 1], list("abcd")).difference
    assert (difference.low, difference.high) == (-1, 1)
    difference = paired_difference([30, 0, 0, 0], [0, 0, 0, 30], list("abcd")).difference
    assert difference.low < -1


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
    assert repeated.mcnemar.reason == "some clusters have several episodes; use the test over clusters"
    assert (
        paired_difference([0.5] * 8, wrong, keys).mcnemar.reason
        == "some scores are fractions, because of ties or several seeds"
    )


def test_with_strata_the_difference_is_that_of_balanced_accuracies():
    first = [1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    second = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    faulty = [True] * 6 + [False] * 2
    paired = paired_difference(first, second, list("abcdefgh"), strata=faulty)
    assert math.isclose(paired.difference.value, (4 / 6 + 1) / 2 - (3 / 6 + 1) / 2)
    assert paired.difference.low < paired.difference.value < paired.difference.high


def test_with_strata_the_test_weighs_both_the_same():
    # better on each of eight faults, worse on each of two healthy episodes: balanced, the two are equally good
    differences = [1.0] * 4 + [0.0] * 4 + [-1.0, 0.0]
    faulty = [True] * 8 + [False] * 2
    assert sign_flip(differences, list(range(10)), strata=faulty).p == 1.0
    assert sign_flip(differences, list(range(10))).p < 1.0


@pytest.mark.parametrize(("comparisons", "clusters"), [(1, 6), (2, 7), (20, 10), (23, 10), (26, 11)])
def test_the_needed_clusters_are_the_fewest_whose_smallest_corrected_p_reaches_the_level(comparisons, clusters):
    assert clusters_needed(comparisons) == clusters
    assert comparisons * 2 / 2**clusters <= 0.05
    assert clusters == 6 or comparisons * 2 / 2 ** (clusters - 1) > 0.05


def test_balanced_accuracy_is_the_mean_of_the_halves():
    estimate = balanced_accuracy([1, 1, 0, 1], list("abcd"), [1, 0], list("xy"))
    assert estimate.value == (0.75 + 0.5) / 2
    assert estimate.n == 6


def test_halves_in_which_all_clusters_agree_combine_wilsons_intervals():
    estimate = balanced_accuracy([1] * 8, list("abcdefgh"), [1] * 4, list("wxyz"))
    low = 1 - 0.5 * math.hypot(1 - wilson(1.0, 8)[0], 1 - wilson(1.0, 4)[0])
    assert np.allclose((estimate.value, estimate.low, estimate.high), (1.0, low, 1.0))


def test_one_more_miss_never_narrows_the_interval_to_something_better():
    perfect = balanced_accuracy([1] * 13, list(range(13)), [1] * 5, list(range(5)))
    one_miss = balanced_accuracy([1] * 12 + [0], list(range(13)), [1] * 5, list(range(5)))
    assert one_miss.low < perfect.low
    assert one_miss.value < perfect.value


def test_matthews_correlation_equals_the_formula_on_counts():
    right, quiet = [1, 1, 1, 0, 0], [1, 1, 0]
    tp, fn, tn, fp = 3, 2, 2, 1
    expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    estimate = matthews_correlation(right, list("abcde"), quiet, list("xyz"))
    assert math.isclose(estimate.value, expected)
    assert estimate.low < expected < estimate.high


def test_answers_that_are_all_the_same_have_no_correlation():
    assert matthews_correlation([1, 1, 1], list("abc"), [0, 0], list("xy")).value == 0.0


def test_one_cluster_of_a_half_gives_a_value_without_an_interval():
    estimate = balanced_accuracy([1, 0], list("ab"), [1, 1], ["x", "x"])
    assert estimate.value == 0.75
    assert estimate.reason == "the fault or the no-fault episodes form only one cluster"


VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


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
