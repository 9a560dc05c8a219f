"""Balanced accuracy and Matthews correlation of two halves."""

from __future__ import annotations

import math

import numpy as np

from faultset.evaluators.statistics.halves import balanced_accuracy, matthews_correlation
from faultset.evaluators.statistics.intervals import wilson


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
    found, quiet = [1, 1, 1, 0, 0], [1, 1, 0]
    tp, fn, tn, fp = 3, 2, 2, 1
    expected = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    estimate = matthews_correlation(found, list("abcde"), quiet, list("xyz"))
    assert math.isclose(estimate.value, expected)
    assert estimate.low < expected < estimate.high


def test_answers_that_are_all_the_same_have_no_correlation():
    assert matthews_correlation([1, 1, 1], list("abc"), [0, 0], list("xy")).value == 0.0


def test_one_cluster_of_a_half_gives_a_value_without_an_interval():
    estimate = balanced_accuracy([1, 0], list("ab"), [1, 1], ["x", "x"])
    assert estimate.value == 0.75
    assert estimate.reason == "one cluster of a half: no interval"
