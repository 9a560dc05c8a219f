"""Mutual information against values worked out by hand and the library."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.stats.dependence import binned_information, knn_information

SHARE = np.array([0, 0, 1 / 3, 1, 1, 1 / 3])


def test_binned_information_of_the_worked_example() -> None:
    series = np.array([(1, 1, 1, 5, 5, 1), (1, 1, 5, 5, 5, 1), (1, 2, 1, 2, 1, 2), (9,) * 6], dtype=float)
    assert binned_information(series, SHARE) == pytest.approx([0.636514, 0.318257, 0, 0], abs=1e-6)


EIGHT = np.array([0, 0, 0, 0, 1, 1, 1, 1], dtype=float)
EIGHT_SERIES = np.array(
    [(1, 1, 1, 1, 5, 5, 5, 5), (1, 1, 1, 5, 5, 5, 5, 5), (0, 0, 0, 0, 0, 0, 0, 7), (1, 2) * 4], dtype=float
)


def test_binned_information_of_eight_bins() -> None:
    assert binned_information(EIGHT_SERIES, EIGHT) == pytest.approx([0.6931, 0.3804, 0.0956, 0], abs=1e-4)


@pytest.mark.parametrize("neighbours", [2, 3, 5])
def test_batched_information_equals_scikit_learn(neighbours: int) -> None:
    from sklearn.feature_selection import mutual_info_regression

    rng = np.random.default_rng(2)
    target = rng.normal(size=40)
    series = np.outer(np.linspace(0, 2, 25), target) + rng.normal(size=(25, 40))
    expected = mutual_info_regression(series.T, target, n_neighbors=neighbours, random_state=0)
    assert knn_information(series, target, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)
    repeated = np.tile(target, (25, 1))
    assert knn_information(series, repeated, neighbours=neighbours) == pytest.approx(expected, abs=1e-6)


def test_information_needs_more_samples_than_neighbours() -> None:
    assert knn_information(np.ones((2, 3)), np.ones(3), neighbours=3).tolist() == [0, 0]
