"""Outlier scores of points relative to normal points, independent of their order."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri_exp

from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, median_and_mad, trusted_input, varies

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


CLIP = 20.0


def random_directions(dimensions: int, count: int, rng: np.random.Generator) -> Matrix:
    """Return `count` random unit vectors, one per row."""
    drawn = rng.standard_normal((count, dimensions))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def shrinkage(samples: int, dimensions: int) -> float:
    """Return the weight of the identity in the correlation matrix: at least 0.1, more for few samples."""
    return max(0.1, dimensions / (samples + dimensions))


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Normal behaviour along the coordinate axes and some other directions.

    The axes ensure that the score is never below the largest |z| of a series. In one dimension the score is K-sigma.
    """

    center: Matrix
    scale: Matrix
    directions: Matrix
    """[B, d] directions in addition to the axes."""
    spread: Matrix
    """[d + B] standard deviation of normal behaviour along each axis and direction, after shrinkage."""
    shrink: float
    normal: Matrix
    """[n, d] standardised reference."""

    @classmethod
    def fit(
        cls,
        reference: Matrix,
        directions: Matrix,
        *,
        shrink: float | None = None,
        robust: bool = False,
        floor: Matrix | float = 0.0,
    ) -> Projection:
        """Fit to a reference [n, d] whose gaps count as normal; no series has a scale below its floor."""
        center, scale = median_and_mad(reference) if robust else mean_and_sd(reference)
        scale = np.maximum(scale, floor)
        normal = _standardise(reference, center, scale, np.zeros(reference.shape, dtype=bool))
        lam = shrinkage(*reference.shape) if shrink is None else shrink
        variance = np.mean(np.hstack([normal, normal @ directions.T]) ** 2, axis=0)
        # Without a minimum, a direction in which the reference is constant would decide everything.
        spread = np.sqrt(np.maximum((1 - lam) * variance + lam, 1e-18))
        return cls(center=center, scale=scale, directions=directions, spread=spread, shrink=lam, normal=normal)

    def standardise(self, values: Matrix, absent: npt.NDArray[np.bool_] | None = None) -> Matrix:
        """Return deviations in standard deviations, clipped so that one series cannot dominate the others."""
        missing = np.zeros(values.shape, dtype=bool) if absent is None else absent
        return _standardise(values, self.center, self.scale, missing)

    def score(self, z: Matrix) -> tuple[Matrix, npt.NDArray[np.intp]]:
        """Return each row's largest K-sigma, and the index of the axis or direction that reaches it."""
        projections = np.abs(np.hstack([z, z @ self.directions.T])) / self.spread
        best = projections.argmax(axis=1)
        return projections[np.arange(len(z)), best], best

    def split(self, z: Matrix, best: npt.NDArray[np.intp]) -> Matrix:
        """Return the share of each series in the deviation of each row along one axis or direction."""
        dimensions = z.shape[1]
        on_axis = best < dimensions
        weights = np.zeros(z.shape)
        weights[on_axis, best[on_axis]] = 1.0
        weights[~on_axis] = self.directions[best[~on_axis] - dimensions]
        return np.abs(z * weights)

    def simulate(self, draws: int, rng: np.random.Generator) -> LargestScore:
        """Return the distribution of `score` for samples of the fitted normal model.

        A sample is a random mixture of the reference rows plus independent noise, which has exactly the shrunk
        covariance. Along each of the B axes and directions it is a standard normal number. So the probability that
        the largest exceeds t is 2·B·Φ(-t) times the mean of 1 / (number of directions beyond t). The mean is over
        samples in which a randomly chosen direction is beyond t (Adler, Blanchet, Liu, Annals of Applied Probability
        2012). A few hundred such samples give the tail more precisely than ten thousand unconditional ones.
        """
        samples, dimensions = self.normal.shape
        count = len(self.spread)
        scale = np.float32(np.sqrt(self.shrink)) / self.spread.astype(np.float32)
        oblique = self.directions.T.astype(np.float32)
        model = np.sqrt((1 - self.shrink) / samples) * self.normal
        mixed = (np.hstack([model, model @ self.directions.T]) / self.spread).astype(np.float32)
        noise = rng.standard_normal((draws, dimensions), dtype=np.float32)
        projections = rng.standard_normal((draws, samples), dtype=np.float32) @ mixed
        projections += np.hstack([noise, noise @ oblique]) * scale
        chosen = rng.integers(count, size=draws)
        weights = np.zeros((draws, dimensions), dtype=np.float32)
        on_axis = chosen < dimensions
        weights[on_axis, chosen[on_axis]] = 1.0
        weights[~on_axis] = oblique.T[chosen[~on_axis] - dimensions]
        correlation = mixed[:, chosen].T @ mixed
        correlation += np.hstack([weights, weights @ oblique]) * scale * scale[chosen, None]
        sign, quantile = rng.choice([-1.0, 1.0], draws), rng.random(draws)
        reached = projections[np.arange(draws), chosen]
        ratios = np.empty(len(_KNOTS))
        for number, knot in enumerate(_KNOTS):
            target = sign * -ndtri_exp(np.log(quantile) + log_ndtr(-knot))
            shifted = projections + correlation * (target - reached).astype(np.float32)[:, None]
            hits = np.count_nonzero(np.abs(shifted, out=shifted) > knot, axis=1)
            ratios[number] = np.log((1 / np.maximum(hits, 1)).mean())
        return LargestScore(log_count=float(np.log(count)), log_ratios=ratios)


_KNOTS = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0, 8.0])


@dataclass(frozen=True, kw_only=True)
class LargestScore:
    """Distribution of the largest |z| along axes and directions, for samples of the normal model."""

    log_count: float
    """Logarithm of the number of axes and directions."""
    log_ratios: Matrix
    """log(P(largest beyond t) / sum of P(each beyond t)) for each t of `_KNOTS`; constant after the last."""

    def equivalent_sigma(self, scores: Matrix) -> Matrix:
        """Return for each score the K that is equally rare in one dimension."""
        tail = self.log_count + log_ndtr(-scores) + np.interp(scores, _KNOTS, self.log_ratios)
        return np.maximum(-ndtri_exp(np.minimum(tail, -np.log(2.0))), 0.0)

    def limit(self, k: float, groups: int = 1) -> float:
        """Return the score that is as rare as K sigma, with the probability divided by `groups`."""
        grid = np.linspace(0.0, 4 * _KNOTS[-1], 6401)
        tail = self.log_count + log_ndtr(-grid) + np.interp(grid, _KNOTS, self.log_ratios)
        return float(grid[np.flatnonzero(tail > log_ndtr(-k) - np.log(groups))[-1]])


def _standardise(values: Matrix, center: Matrix, scale: Matrix, absent: npt.NDArray[np.bool_]) -> Matrix:
    return np.clip(deviations(values, center, scale, absent), -CLIP, CLIP)


def out_of_fold_maximum(
    reference: Matrix,
    directions: Matrix,
    *,
    shrink: float | None,
    robust: bool,
    folds: int = 4,
    floor: Matrix | float = 0.0,
) -> float:
    """Return the largest score of the reference, with each block scored by a model of the others; 0 if too short."""
    pieces = np.array_split(np.arange(len(reference)), folds)
    if min(len(piece) for piece in pieces) == 0:
        return 0.0
    worst = 0.0
    for piece in pieces:
        rest = np.setdiff1d(np.arange(len(reference)), piece)
        model = Projection.fit(reference[rest], directions, shrink=shrink, robust=robust, floor=floor)
        worst = max(worst, float(model.score(model.standardise(reference[piece]))[0].max()))
    return worst
