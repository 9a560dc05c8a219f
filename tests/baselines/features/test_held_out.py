"""Held-out deviations of healthy blocks, and their limits."""

from __future__ import annotations

import numpy as np

from faultset.baselines.features.held_out import (
    divide_by_limits,
    hold_out_deviations,
    hold_out_scores,
    read_held_out,
    remove_spikes,
    split_folds,
)
from faultset.baselines.stats.scaling import sustained, with_metric_floor

NAMES = tuple((f"s{column}", f"m{column}") for column in range(50))


def test_blocks_are_consecutive_and_cover_every_sample_once() -> None:
    pairs = split_folds(10)
    assert np.concatenate([block for _, block in pairs]).tolist() == list(range(10))
    for rest, block in pairs:
        assert (np.diff(block) == 1).all()
        assert sorted([*rest, *block]) == list(range(10))


def test_a_block_is_judged_by_the_others_alone() -> None:
    reference = np.random.default_rng(0).normal(size=(40, 3))
    before = hold_out_deviations(reference, NAMES[:3])
    moved = reference.copy()
    moved[:10] += 50
    after = hold_out_deviations(moved, NAMES[:3])
    spread = with_metric_floor(reference[10:].std(axis=0), NAMES[:3])
    np.testing.assert_allclose(before[:10], (reference[:10] - reference[10:].mean(axis=0)) / spread)
    np.testing.assert_allclose(after[:10] - before[:10], 50 / np.broadcast_to(spread, (10, 3)))


def test_held_out_scores_are_those_of_a_model_that_has_not_seen_the_row() -> None:
    normal = np.arange(8.0)[:, None]
    seen = hold_out_scores(normal, lambda rest, block: np.isin(block[:, 0], rest[:, 0]).astype(float))
    assert seen.tolist() == [0.0] * 8


def test_a_column_is_measured_by_its_own_largest_deviation() -> None:
    normal = np.array([[1.0, 8.0]] * 8)
    shares, limit = divide_by_limits(normal, np.array([[4.0, 4.0], [1.0, 16.0]]), 2.0)
    assert shares.tolist() == [[2.0, 0.5], [0.5, 2.0]]
    assert limit == 1.0


def test_one_spike_leaves_no_trace_and_two_samples_do() -> None:
    z = np.array([[0.0], [9.0], [0.5], [5.0], [-6.0]])
    assert remove_spikes(z).ravel().tolist() == [0.0, 0.0, 0.5, 0.5, -5.0]
    np.testing.assert_array_equal(np.abs(remove_spikes(z)), sustained(z, 2))


def test_a_short_reference_gives_no_deviations(alter, faulty) -> None:
    def early(rows):
        times = rows["time"].cast("int64").to_numpy()
        return rows.filter((times < times.min() + 5_000_000_000) | (times > times.min() + 70_000_000_000))

    assert read_held_out(alter(faulty, {"metrics": early})) is None
