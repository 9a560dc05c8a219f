"""Outlier scores compared with their formulas and with libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from faultset.baselines.stats.outlier_scores import (
    ecod_scores,
    forest_scores,
    local_outlier_factors,
    principal_distances,
    robust_mahalanobis,
    shrunk_mahalanobis,
)

RNG = np.random.default_rng(0)
NORMAL = RNG.normal(size=(40, 4)) @ RNG.normal(size=(4, 4))
POINTS = 3 * RNG.normal(size=(15, 4))


def test_ecod_is_the_sum_of_its_formula() -> None:
    normal = RNG.gamma(2.0, size=(30, 5)) * np.array([1, 1, -1, -1, 1])
    points = RNG.normal(size=(10, 5))
    for point, score in zip(points, ecod_scores(normal, points), strict=True):
        lower = [-np.log((1 + sum(normal[:, j] <= point[j])) / 31) for j in range(5)]
        right = [-np.log((1 + sum(normal[:, j] >= point[j])) / 31) for j in range(5)]
        skewed = [lower[j] if stats.skew(normal[:, j]) < 0 else right[j] for j in range(5)]
        assert score == pytest.approx(max(sum(lower), sum(right), sum(skewed)))


def test_ecod_does_not_depend_on_what_else_is_asked() -> None:
    together = ecod_scores(NORMAL, POINTS)
    alone = [ecod_scores(NORMAL, POINTS[row : row + 1])[0] for row in range(len(POINTS))]
    assert together == pytest.approx(alone)


def test_ecod_passes_over_gaps_and_takes_infinity_for_the_farthest() -> None:
    assert ecod_scores(NORMAL, np.full((1, 4), np.nan)).tolist() == [0.0]
    assert ecod_scores(NORMAL, np.full((1, 4), np.inf)) == pytest.approx([4 * np.log(41)])
    constant = np.full((10, 3), 2.0)
    assert ecod_scores(constant, constant[:1]).tolist() == [0.0]


def test_the_residual_is_what_the_projection_leaves() -> None:
    spe, t2 = principal_distances(NORMAL, POINTS, variance=0.8)
    center = NORMAL.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov(NORMAL.T))
    values, axes = values[::-1], axes[:, ::-1]
    remaining = int(np.searchsorted(np.cumsum(values) / values.sum(), 0.8)) + 1
    basis = axes[:, :remaining]
    residual = (np.eye(4) - basis @ basis.T) @ (POINTS - center).T
    assert 0 < remaining < 4
    assert spe == pytest.approx((residual**2).sum(axis=0))
    assert t2 == pytest.approx((((POINTS - center) @ basis) ** 2 / values[:remaining]).sum(axis=1))


def test_with_all_the_variance_nothing_is_left_over() -> None:
    spe, t2 = principal_distances(NORMAL, POINTS, variance=1.0)
    assert spe == pytest.approx(np.zeros(len(POINTS)), abs=1e-9)
    moved = POINTS - NORMAL.mean(axis=0)
    assert t2 == pytest.approx((moved @ np.linalg.inv(np.cov(NORMAL.T)) * moved).sum(axis=1))


def test_a_constant_reference_has_no_subspace() -> None:
    spe, t2 = principal_distances(np.zeros((10, 3)), np.array([[0.0, 0, 0], [0, 2, 0]]))
    assert spe.tolist() == [0.0, 4.0]
    assert t2.tolist() == [0.0, 0.0]


def library_forest(trees: int, seed: int) -> IsolationForest:
    parameters: dict[str, Any] = {"n_estimators": trees, "max_samples": 20, "random_state": seed}
    return IsolationForest(**parameters).fit(NORMAL)


def test_forest_scores_are_those_of_the_library() -> None:
    _, scores = forest_scores(NORMAL, POINTS, trees=50, seed=3)
    library = library_forest(50, 3)
    assert scores == pytest.approx(-library.score_samples(POINTS), abs=1e-6)


def test_healthy_rows_are_scored_by_trees_that_did_not_see_them() -> None:
    held_out, _ = forest_scores(NORMAL, POINTS, trees=200)
    library = library_forest(200, 0)
    assert held_out.mean() > (-library.score_samples(NORMAL)).mean()


def test_factors_agree_with_the_library_apart_from_the_noise_that_parts_equal_rows() -> None:
    wide, far = 100 * NORMAL, 100 * POINTS
    theirs = -LocalOutlierFactor(n_neighbors=10, novelty=True).fit(wide).score_samples(far)
    assert local_outlier_factors(wide, far, neighbours=10) == pytest.approx(theirs, rel=0.02)
    same = local_outlier_factors(np.ones((20, 3)), np.ones((1, 3)))
    assert same[0] < 2


def test_shrinking_leaves_the_mahalanobis_distance_of_many_rows_alone() -> None:
    many = RNG.normal(size=(4000, 3)) @ np.diag([1.0, 5.0, 20.0])
    ask = np.array([[3.0, 0, 0], [0, 15, 0], [0, 0, 60]])
    assert shrunk_mahalanobis(many, ask) == pytest.approx([3, 3, 3], rel=0.1)
    assert np.isfinite(shrunk_mahalanobis(np.zeros((10, 40)), np.ones((2, 40)))).all()


def test_the_robust_distance_is_not_masked_by_outliers_in_the_reference() -> None:
    normal = RNG.normal(size=(60, 2))
    normal[:12] += 15
    ask = np.array([[15.0, 15.0]])
    assert robust_mahalanobis(normal, ask)[0] > 3 * shrunk_mahalanobis(normal, ask)[0]


def test_dimensions_that_stand_still_are_measured_apart() -> None:
    normal = np.column_stack([RNG.normal(size=40), np.zeros(40)])
    near, far = robust_mahalanobis(normal, np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert near < 3
    assert far == pytest.approx(20, rel=0.02)
