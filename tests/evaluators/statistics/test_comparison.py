"""Paired tests against published or hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.evaluators.statistics.comparison import clusters_needed, holm, mcnemar_exact, paired_difference, sign_flip


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
