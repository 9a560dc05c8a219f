"""Outlier scores of points against normal ones; they need no order of time."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.baselines.stats.scaling import Matrix, varies
from faultset.baselines.stats.trusted_input import trusted_input

if TYPE_CHECKING:
    from sklearn.covariance import MinCovDet

STILL = 0.05
_LARGEST = np.iinfo(np.int32).max


def ecod_scores(normal: Matrix, points: Matrix) -> Matrix:
    """Sum of each dimension's tail surprise, by empirical distributions of the normal rows alone.

    Tail probabilities are (1 + rows as extreme) / (1 + rows), so that a value beyond all others is surprising
    and not impossible. What is not a number says nothing.

    Returns
    -------
    ndarray
        [t] the largest of three sums: left tails, right tails, and the tail that each dimension's skewness
        chooses.
    """
    present = np.isfinite(normal)
    count = 1 + present.sum(axis=0)
    filled = np.where(present, normal, np.inf)
    ordered = np.sort(filled, axis=0)
    below = np.zeros(points.shape)
    above = np.zeros(points.shape)
    # One pass per normal row is less memory than all comparisons at once.
    for row in ordered:
        below += row <= points
        above += (row >= points) & (row < np.inf)
    unknown = np.isnan(points)
    left = np.where(unknown, 0.0, -np.log((1 + below) / count))
    right = np.where(unknown, 0.0, -np.log((1 + above) / count))
    by_skew = np.where(_skewness(normal, present) < 0, left, right)
    return np.max([left.sum(axis=1), right.sum(axis=1), by_skew.sum(axis=1)], axis=0)


def _skewness(normal: Matrix, present: np.ndarray) -> Matrix:
    """Sign of the third central moment, and its size up to a factor."""
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, normal, 0.0).sum(axis=0) / count
    return (np.where(present, normal - mean, 0.0) ** 3).sum(axis=0)


def principal_distances(normal: Matrix, points: Matrix, *, variance: float = 0.95) -> tuple[Matrix, Matrix]:
    """Squared distance to the principal subspace (SPE), and within it (Hotelling's T squared).

    Parameters
    ----------
    variance
        Share of the variance of the normal rows that the subspace keeps.
    """
    center = normal.mean(axis=0)
    _, sizes, axes = np.linalg.svd(normal - center, full_matrices=False)
    share = np.cumsum(sizes**2) / max(float((sizes**2).sum()), 1e-300)
    kept = min(int(np.searchsorted(share, variance)) + 1, int((sizes > 1e-9 * sizes.max(initial=0.0)).sum()))
    moved = points - center
    along = moved @ axes[:kept].T
    spe = np.maximum((moved**2).sum(axis=1) - (along**2).sum(axis=1), 0.0)
    return spe, (along**2 / (sizes[:kept] ** 2 / max(len(normal) - 1, 1))).sum(axis=1)


def forest_scores(
    normal: Matrix, points: Matrix, *, trees: int = 100, share: float = 0.5, seed: int = 0
) -> tuple[Matrix, Matrix]:
    """Isolation scores `2^(-E[h(x)] / c)` of normal and of test rows.

    Each tree is grown from a share of the normal rows, and a normal row is scored by the trees that did not see
    it; by all of them if none is left.
    """
    size = max(2, min(256, round(share * len(normal))))
    rows = np.vstack([normal, points]).astype(np.float32)
    depths = np.empty((trees, len(rows)))
    seen = np.zeros((trees, len(normal)), dtype=bool)
    with trusted_input():
        for number, (grown, sample) in enumerate(_isolation_trees(rows[: len(normal)], trees, size, seed)):
            ends = grown.compute_node_depths() - 1 + mean_path(grown.n_node_samples)
            depths[number] = ends[grown.apply(rows)]
            seen[number, sample] = True
    weight = np.where(seen.all(axis=0), 1.0, ~seen)
    mean_depths = (depths[:, : len(normal)] * weight).sum(axis=0) / weight.sum(axis=0)
    scale = float(mean_path(np.array([size]))[0])
    return 2 ** (-mean_depths / scale), 2 ** (-depths[:, len(normal) :].mean(axis=0) / scale)


def _isolation_trees(rows: np.ndarray, trees: int, size: int, seed: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield each tree that scikit-learn's `IsolationForest` grows from a seed, with the rows that it saw.

    Its bagging copies, configures and checks an estimator for every tree, which takes longer than to grow the tree.
    """
    from sklearn.tree import ExtraTreeRegressor
    from sklearn.utils.random import sample_without_replacement

    samples, features = rows.shape
    noise = np.random.RandomState(seed).uniform(size=samples)
    of_tree = np.random.RandomState(0)
    depth = math.ceil(math.log2(size))
    model = ExtraTreeRegressor(max_features=1, splitter="random", max_depth=depth, random_state=of_tree)
    for number in np.random.RandomState(seed).randint(_LARGEST, size=trees):
        # the same seed serves twice: for the tree, and for what it sees
        of_tree.seed(number)
        sample_without_replacement(features, features, random_state=of_tree)
        sample = np.sort(sample_without_replacement(samples, size, random_state=of_tree))
        of_tree.seed(number)
        of_tree.seed(of_tree.randint(_LARGEST))
        yield model.fit(rows[sample], noise[sample], check_input=False).tree_, sample


def mean_path(rows: np.ndarray) -> Matrix:
    """Average depth at which one of so many rows is isolated, by an unsuccessful search in a binary tree.

    >>> mean_path(np.array([1, 2, 256])).round(3).tolist()
    [0.0, 1.0, 10.245]
    """
    rows = np.asarray(rows, dtype=float)
    harmonic = np.log(np.maximum(rows - 1, 1)) + np.euler_gamma
    path = 2 * harmonic - 2 * (rows - 1) / np.maximum(rows, 1)
    return np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, path))


def local_outlier_factors(normal: Matrix, points: Matrix, *, neighbours: int = 20) -> Matrix:
    """Density of a point's neighbours over its own; at most half of the normal rows are neighbours."""
    from sklearn.neighbors import LocalOutlierFactor

    k = max(1, min(neighbours, (len(normal) - 1) // 2))
    # Equal rows would be infinitely dense, so every dimension that moves has a least width.
    width = STILL**2 * max(1, int(varies(normal).sum()))
    among, away = (np.sqrt(_squared_distances(rows, normal) + width) for rows in (normal, points))
    np.fill_diagonal(among, 0.0)
    model = LocalOutlierFactor(n_neighbors=k, metric="precomputed", novelty=True).fit(among)
    return -model.score_samples(away)


def _squared_distances(rows: Matrix, others: Matrix) -> Matrix:
    products = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * rows @ others.T
    return np.maximum(products, 0.0)


def shrunk_mahalanobis(normal: Matrix, points: Matrix) -> Matrix:
    """Mahalanobis distance with the covariance shrunk as Ledoit and Wolf do, for more dimensions than rows.

    Dimensions that never move among the normal rows have the variance that shrinking gives to all.
    """
    from sklearn.covariance import ledoit_wolf

    center = normal.mean(axis=0)
    moved, moving = points - center, varies(normal)
    least = STILL**2
    squared = np.zeros(len(points))
    if moving.any():
        covariance, shrinkage = ledoit_wolf(normal[:, moving] - center[moving], assume_centered=True)
        mean_variance = normal[:, moving].var(axis=0).mean()
        covariance = covariance + least * np.eye(len(covariance))
        squared = (moved[:, moving] * np.linalg.solve(covariance, moved[:, moving].T).T).sum(axis=1)
        least += float(shrinkage * mean_variance)
    squared = squared + (moved[:, ~moving] ** 2).sum(axis=1) / least
    return np.sqrt(np.maximum(squared, 0.0))


def robust_mahalanobis(normal: Matrix, points: Matrix, *, seed: int = 0) -> Matrix:
    """Mahalanobis distance by the minimum covariance determinant.

    Dimensions in which most normal rows agree would make every determinant zero; they are measured apart, in units
    of `STILL`.
    """
    middle = np.median(normal, axis=0)
    moving = (np.abs(normal - middle) < STILL).mean(axis=0) < 0.4
    squared = (((points - middle) / STILL)[:, ~moving] ** 2).sum(axis=1)
    if moving.any() and len(normal) > 2 * moving.sum():
        with warnings.catch_warnings(), trusted_input():
            # Of a singular subset it says so and goes on with a pseudo-inverse, which is what is wanted.
            warnings.simplefilter("ignore")
            model = _determinant_estimator()(random_state=seed).fit(normal[:, moving])
        squared = squared + model.mahalanobis(points[:, moving])
    elif moving.any():
        squared = squared + shrunk_mahalanobis(normal[:, moving], points[:, moving]) ** 2
    return np.sqrt(squared)


@functools.cache
def _determinant_estimator() -> type[MinCovDet]:
    """Return scikit-learn's estimator, without the checks that its own covariance makes of every subset."""
    from sklearn.covariance import MinCovDet

    class UncheckedMinCovDet(MinCovDet):
        _nonrobust_covariance = staticmethod(_covariance)

    return UncheckedMinCovDet


def _covariance(rows: Matrix, *, assume_centered: bool = False) -> Matrix:
    """Covariance of rows, by their number and not one less."""
    columns = rows.T
    moved = columns if assume_centered else columns - columns.mean(axis=1)[:, None]
    return moved @ moved.T * (1 / len(rows))
