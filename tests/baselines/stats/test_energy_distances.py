"""Energy distances and their p-values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from faultset.baselines.stats.dependence import energy_distances, permutation_p_values, ranked_samples

BASE = np.array([0.0, 2, 1, -1, 0, 2, 1, -1])
REFERENCE = np.column_stack([10 + BASE, 50 + np.tile([0.0, 0, 1, -1], 2), 20 + BASE, 100 + BASE])
VALUES = np.array([[10.0, 50, 21, 100], [30, 50, 21, 10], [31, 51, 40, 9], [30, 49, 41, 10]])


def pairs_mean(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([abs(x - y) for x in a for y in b]))


def test_energy_distance_is_the_difference_of_mean_distances_between_all_pairs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 3)), rng.integers(0, 3, size=(5, 3)).astype(float)
    expected = [2 * pairs_mean(x, y) - pairs_mean(x, x) - pairs_mean(y, y) for x, y in zip(a.T, b.T, strict=True)]
    assert energy_distances(a, b) == pytest.approx(expected)


def test_energy_distance_has_the_published_values() -> None:
    found = np.sqrt(energy_distances(REFERENCE, VALUES))
    assert found == pytest.approx([4.5962, 0.0, 3.1425, 10.0685], abs=1e-4)


def test_a_p_value_is_the_share_of_labellings_that_reach_the_distance() -> None:
    a, b = np.array([[0.0], [1.0], [2.5]]), np.array([[3.0], [1.5], [7.0]])
    pooled = np.concatenate([a, b])[:, 0]
    observed = energy_distances(a, b)[0]
    reached = [
        energy_distances(pooled[list(chosen), None], np.delete(pooled, chosen)[:, None])[0] >= observed - 1e-12
        for chosen in itertools.combinations(range(6), 3)
    ]
    p = permutation_p_values(ranked_samples(a, b), draws=20_000, rng=np.random.default_rng(1))
    assert p[0] == pytest.approx(np.mean(reached), abs=0.015)


def test_p_values_are_uniform_where_nothing_changed_and_smallest_where_the_level_did() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(40, 600)), rng.normal(size=(30, 600))
    b[:, 0] += 50
    p = permutation_p_values(ranked_samples(a, b), rng=rng)
    assert p[0] == pytest.approx(1 / 500)
    assert np.mean(p[1:] <= 0.05) == pytest.approx(0.05, abs=0.02)
    assert np.mean(p[1:] <= 0.5) == pytest.approx(0.5, abs=0.05)
