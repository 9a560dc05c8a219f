"""Rows counted in the steps of an episode."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from faultset.baselines.features.step_counts import (
    Steps,
    excess_surprise,
    recent_sums,
    recent_sums_without_worst,
    steps_of,
)


def test_an_excess_is_as_surprising_as_its_binomial_tail() -> None:
    found = excess_surprise(np.array([[0], [3]]), np.array([[10], [10]]), np.array([0.05]))
    assert found[:, 0] == pytest.approx([0.0, -np.log10(stats.binom.sf(2, 10, 0.05))])


def test_rows_are_counted_in_the_step_in_which_they_fall(example, faulty) -> None:
    steps = Steps(start_ns=100, step_ns=10, count=4, healthy=2, view_end_ns=138)
    assert steps.of(np.array([99, 100, 109, 110, 137, 138])).tolist() == [-1, 0, 0, 1, 3, -1]
    assert steps.times_ns.tolist() == [130, 138]
    keys = np.array([0, 1, -1, 1])
    assert steps.counts(np.array([100, 101, 102, 131]), keys, 2).tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]
    view = example.view(faulty)
    assert steps_of(view).times_ns[-1] == view.view[1]


def test_sums_reach_back_five_steps() -> None:
    counts = np.arange(1, 9)[:, None]
    assert recent_sums(counts)[:, 0].tolist() == [1, 3, 6, 10, 15, 20, 25, 30]


def test_the_worst_step_of_five_is_left_out_with_all_of_its_rows() -> None:
    rng = np.random.default_rng(3)
    among = rng.integers(0, 30, (40, 3))
    found = rng.binomial(among, 0.3)
    sums = recent_sums_without_worst(found, among, 5)
    for step in range(40):
        for kind in range(3):
            window = slice(max(step - 4, 0), step + 1)
            worst = found[window, kind].max()
            assert sums[0][step, kind] == found[window, kind].sum() - worst
            left_out = among[window, kind].sum() - sums[1][step, kind]
            assert left_out in {0 if step < 4 else -1, *among[window, kind][found[window, kind] == worst].tolist()}


def test_a_burst_within_one_step_adds_nothing() -> None:
    among = np.full((20, 1), 10)
    burst = np.where(np.arange(20)[:, None] == 8, 9, 0)
    assert not recent_sums_without_worst(burst, among, 10)[0].any()
    assert recent_sums(burst).max() == 9
