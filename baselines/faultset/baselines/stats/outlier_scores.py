"""Outlier scores of points relative to normal points, independent of their order."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.baselines.stats.scaling import Matrix, trusted_input, varies

if TYPE_CHECKING:
    from sklearn.covariance import MinCovDet

MIN_SPREAD = 0.05
"""Smallest spread of a dimension in standard deviations; dimensions with a smaller spread count as constant."""
_MAX_SEED = np.iinfo(np.int32).max


def ecod_scores(normal: Matrix, points: Matrix) -> Matrix:
    """Return the summed tail surprise of all dimensions, by empirical distributions of the normal rows.

    Tail probabilities are (1 + rows as extreme) / (1 + rows), which is positive even beyond all normal rows. NaN does
    not contribute.

    Returns
    -------
    ndarray
        [t] the largest of three sums: lower tails, upper tails, and per dimension the tail on the side of its skew.
    """
    present = np.isfinite(normal)
    count = 1 + present.sum(axis=0)
    filled = np.where(present, normal, np.inf)
    ordered = np.sort(filled, axis=0)
    count_below = np.zeros(points.shape)
    count_above = np.zeros(points.shape)
    # One pass per normal row needs less memory than all comparisons at once.
    for row in ordered:
        count_below += row <= points
        count_above += (row >= points) & (row < np.inf)
    unknown = np.isnan(points)
    lower_tail = np.where(unknown, 0.0, -np.log((1 + count_below) / count))
    upper_tail = np.where(unknown, 0.0, -np.log((1 + count_above) / count))
    by_skew = np.where(_compute_skewness(normal, present) < 0, lower_tail, upper_tail)
    return np.max([lower_tail.sum(axis=1), upper_tail.sum(axis=1), by_skew.sum(axis=1)], axis=0)


def _compute_skewness(normal: Matrix, present: np.ndarray) -> Matrix:
    """Return the third central moment up to a positive factor."""
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, normal, 0.0).sum(axis=0) / count
    return (np.where(present, normal - mean, 0.0) ** 3).sum(axis=0)


def principal_distances(normal: Matrix, points: Matrix, *, variance: float = 0.95) -> tuple[Matrix, Matrix]:
    """Return the squared distances to the principal subspace (SPE) and within it (Hotelling's T²).

    Parameters
    ----------
    variance
        Share of the variance of the normal rows that the subspace keeps.
    """
    center = normal.mean(axis=0)
    _, sizes, axes = np.linalg.svd(normal - center, full_matrices=False)
    share = np.cumsum(sizes**2) / max(float((sizes**2).sum()), 1e-300)
    axis_count = min(int(np.searchsorted(share, variance)) + 1, int((sizes > 1e-9 * sizes.max(initial=0.0)).sum()))
    centred = points - center
    projections = centred @ axes[:axis_count].T
    spe = np.maximum((centred**2).sum(axis=1) - (projections**2).sum(axis=1), 0.0)
    return spe, (projections**2 / (sizes[:axis_count] ** 2 / max(len(normal) - 1, 1))).sum(axis=1)


def forest_scores(
    normal: Matrix, points: Matrix, *, trees: int = 100, share: float = 0.5, seed: int = 0
) -> tuple[Matrix, Matrix]:
    """Return the isolation scores `2^(-E[h(x)] / c)` of the normal rows and of the test rows.

    Each tree is grown from a share of the normal rows. A normal row is scored by the trees that were grown without it,
    or by all trees if there are none.
    """
    size = max(2, min(256, round(share * len(normal))))
    rows = np.vstack([normal, points]).astype(np.float32)
    depths = np.empty((trees, len(rows)))
    in_sample = np.zeros((trees, len(normal)), dtype=bool)
    with trusted_input():
        for number, (tree, sample) in enumerate(_grow_isolation_trees(rows[: len(normal)], trees, size, seed)):
            path_lengths = tree.compute_node_depths() - 1 + mean_path(tree.n_node_samples)
            depths[number] = path_lengths[tree.apply(rows)]
            in_sample[number, sample] = True
    weight = np.where(in_sample.all(axis=0), 1.0, ~in_sample)
    mean_depths = (depths[:, : len(normal)] * weight).sum(axis=0) / weight.sum(axis=0)
    scale = float(mean_path(np.array([size]))[0])
    return 2 ** (-mean_depths / scale), 2 ** (-depths[:, len(normal) :].mean(axis=0) / scale)


def _grow_isolation_trees(rows: np.ndarray, trees: int, size: int, seed: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the trees of scikit-learn's `IsolationForest` for a seed, each with its training rows.

    scikit-learn copies, configures and checks an estimator per tree, which takes longer than growing the tree.
    """
    from sklearn.tree import ExtraTreeRegressor
    from sklearn.utils.random import sample_without_replacement

    samples, features = rows.shape
    noise = np.random.RandomState(seed).uniform(size=samples)
    tree_random = np.random.RandomState(0)
    depth = math.ceil(math.log2(size))
    model = ExtraTreeRegressor(max_features=1, splitter="random", max_depth=depth, random_state=tree_random)
    for number in np.random.RandomState(seed).randint(_MAX_SEED, size=trees):
        # scikit-learn uses the same seed for the tree and for its sample.
        tree_random.seed(number)
        sample_without_replacement(features, features, random_state=tree_random)
        sample = np.sort(sample_without_replacement(samples, size, random_state=tree_random))
        tree_random.seed(number)
        tree_random.seed(tree_random.randint(_MAX_SEED))
        yield model.fit(rows[sample], noise[sample], check_input=False).tree_, sample


def mean_path(rows: np.ndarray) -> Matrix:
    """Return the average depth at which a row is isolated, for each number of rows.

    >>> mean_path(np.array([1, 2, 256])).round(3).tolist()
    [0.0, 1.0, 10.245]
    """
    rows = np.asarray(rows, dtype=float)
    harmonic = np.log(np.maximum(rows - 1, 1)) + np.euler_gamma
    path = 2 * harmonic - 2 * (rows - 1) / np.maximum(rows, 1)
    return np.where(rows <= 1, 0.0, np.where(rows == 2, 1.0, path))


def local_outlier_factors(normal: Matrix, points: Matrix, *, neighbours: int = 20) -> Matrix:
    """Return the density of each point's neighbours divided by the density of the point.

    At most half of the normal rows count as neighbours.
    """
    from sklearn.neighbors import LocalOutlierFactor

    k = max(1, min(neighbours, (len(normal) - 1) // 2))
    # A minimum width per varying dimension keeps equal rows from being infinitely dense.
    width = MIN_SPREAD**2 * max(1, int(varies(normal).sum()))
    normal_distances, distances = (
        np.sqrt(_compute_squared_distances(rows, normal) + width) for rows in (normal, points)
    )
    np.fill_diagonal(normal_distances, 0.0)
    model = LocalOutlierFactor(n_neighbors=k, metric="precomputed", novelty=True).fit(normal_distances)
    return -model.score_samples(distances)


def _compute_squared_distances(rows: Matrix, others: Matrix) -> Matrix:
    products = (rows**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * rows @ others.T
    return np.maximum(products, 0.0)


def shrunk_mahalanobis(normal: Matrix, points: Matrix) -> Matrix:
    """Return Mahalanobis distances with a Ledoit-Wolf covariance, which allows more dimensions than rows.

    Dimensions that are constant among the normal rows get the variance that shrinkage adds to all.
    """
    from sklearn.covariance import ledoit_wolf

    center = normal.mean(axis=0)
    centred, varying = points - center, varies(normal)
    minimum = MIN_SPREAD**2
    squared = np.zeros(len(points))
    if varying.any():
        covariance, shrinkage = ledoit_wolf(normal[:, varying] - center[varying], assume_centered=True)
        mean_variance = normal[:, varying].var(axis=0).mean()
        covariance = covariance + minimum * np.eye(len(covariance))
        squared = (centred[:, varying] * np.linalg.solve(covariance, centred[:, varying].T).T).sum(axis=1)
        minimum += float(shrinkage * mean_variance)
    squared = squared + (centred[:, ~varying] ** 2).sum(axis=1) / minimum
    return np.sqrt(np.maximum(squared, 0.0))


def robust_mahalanobis(normal: Matrix, points: Matrix, *, seed: int = 0) -> Matrix:
    """Return Mahalanobis distances by the minimum covariance determinant.

    Dimensions in which 40 % of the normal rows or more are close to the median could make determinants zero. They are
    measured separately, in units of `MIN_SPREAD`.
    """
    middle = np.median(normal, axis=0)
    varying = (np.abs(normal - middle) < MIN_SPREAD).mean(axis=0) < 0.4
    squared = (((points - middle) / MIN_SPREAD)[:, ~varying] ** 2).sum(axis=1)
    if varying.any() and len(normal) > 2 * varying.sum():
        with warnings.catch_warnings(), trusted_input():
            # The estimator warns about singular subsets and then uses a pseudo-inverse, as intended.
            warnings.simplefilter("ignore")
            model = _load_determinant_estimator()(random_state=seed).fit(normal[:, varying])
        squared = squared + model.mahalanobis(points[:, varying])
    elif varying.any():
        squared = squared + shrunk_mahalanobis(normal[:, varying], points[:, varying]) ** 2
    return np.sqrt(squared)


@functools.cache
def _load_determinant_estimator() -> type[MinCovDet]:
    """Return scikit-learn's estimator without input checks for every subset."""
    from sklearn.covariance import MinCovDet

    class UncheckedMinCovDet(MinCovDet):
        _nonrobust_covariance = staticmethod(_compute_covariance)

    return UncheckedMinCovDet


def _compute_covariance(rows: Matrix, *, assume_centered: bool = False) -> Matrix:
    """Return the covariance of rows, divided by their number."""
    columns = rows.T
    centred = columns if assume_centered else columns - columns.mean(axis=1)[:, None]
    return centred @ centred.T * (1 / len(rows))
