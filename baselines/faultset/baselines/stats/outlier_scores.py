"""Outlier scores of points against normal ones; they need no order of time."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, median_and_mad, trusted_input, varies

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


CLIP = 20.0
_BLOCK_FLOATS = 4_000_000


def random_directions(dimensions: int, count: int, rng: np.random.Generator) -> Matrix:
    """Coordinate axes followed by `count` random directions, one per row, all of length one.

    With the axes the score is never below the largest single |z|, and in one dimension it is K-sigma itself.
    """
    drawn = rng.standard_normal((count, dimensions))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return np.vstack([np.eye(dimensions), drawn])


def shrinkage(samples: int, dimensions: int) -> float:
    """Weight of the identity in the correlation matrix: at least a tenth, more when samples are few."""
    return max(0.1, dimensions / (samples + dimensions))


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Fitted normal behaviour, seen along fixed directions."""

    center: Matrix
    scale: Matrix
    directions: Matrix
    spread: Matrix
    """[B] standard deviation of normal behaviour along each direction, after shrinkage."""
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
        """Fit on a reference of n samples by d series without gaps that matter (they count as normal).

        A series' scale is no less than its floor.
        """
        center, scale = median_and_mad(reference) if robust else mean_and_sd(reference)
        scale = np.maximum(scale, floor)
        normal = _standardise(reference, center, scale, np.zeros(reference.shape, dtype=bool))
        lam = shrinkage(*reference.shape) if shrink is None else shrink
        variance = np.mean((normal @ directions.T) ** 2, axis=0)
        # A direction in which normal never moves says nothing; without shrinkage it would say everything.
        spread = np.sqrt(np.maximum((1 - lam) * variance + lam, 1e-18))
        return cls(center=center, scale=scale, directions=directions, spread=spread, shrink=lam, normal=normal)

    def standardise(self, values: Matrix, absent: npt.NDArray[np.bool_] | None = None) -> Matrix:
        """Deviations of values in units of normal, clipped so that one series cannot drown the others."""
        missing = np.zeros(values.shape, dtype=bool) if absent is None else absent
        return _standardise(values, self.center, self.scale, missing)

    def score(self, z: Matrix) -> tuple[Matrix, npt.NDArray[np.intp]]:
        """Largest K-sigma of each row over all directions, and the direction that reaches it."""
        along = np.abs(z @ self.directions.T) / self.spread
        best = along.argmax(axis=1)
        return along[np.arange(len(z)), best], best

    def simulate(self, draws: int, rng: np.random.Generator) -> Matrix:
        """Scores of samples drawn from the fitted normal model, ascending.

        Each sample is a random mixture of the reference rows plus independent noise, which has exactly the
        shrunk covariance and needs no factorisation.
        """
        samples, dimensions = self.normal.shape
        axes = dimensions if np.array_equal(self.directions[:dimensions], np.eye(dimensions)) else 0
        oblique = self.directions[axes:].T.astype(np.float32)
        spread = self.spread.astype(np.float32)
        normal = (np.sqrt((1 - self.shrink) / samples) * self.normal).astype(np.float32)
        noise_scale = np.float32(np.sqrt(self.shrink))
        scores = np.empty(draws, dtype=np.float32)
        block = max(1, _BLOCK_FLOATS // max(len(self.directions), dimensions))
        for start in range(0, draws, block):
            rows = min(block, draws - start)
            z = rng.standard_normal((rows, samples), dtype=np.float32) @ normal
            z += noise_scale * rng.standard_normal((rows, dimensions), dtype=np.float32)
            best = np.zeros(rows, dtype=np.float32)
            if axes:
                best = (np.abs(z) / spread[:axes]).max(axis=1)
            if oblique.size:
                best = np.maximum(best, (np.abs(z @ oblique) / spread[axes:]).max(axis=1))
            scores[start : start + rows] = best
        return np.sort(scores).astype(float)


def _standardise(values: Matrix, center: Matrix, scale: Matrix, absent: npt.NDArray[np.bool_]) -> Matrix:
    return np.clip(deviations(values, center, scale, absent), -CLIP, CLIP)


def tail_probability(k: float) -> float:
    """Share of a normal variable beyond k standard deviations on either side."""
    return float(2 * ndtr(-k))


def equivalent_sigma(scores: Matrix, null: Matrix) -> Matrix:
    """Translate scores into the one-dimensional K with the same rarity under the simulated null (ascending).

    Between two draws the rarity is interpolated. Beyond the largest draw, where the simulation knows nothing,
    K grows in proportion to the score, so that larger stays larger.
    """
    draws = len(null)
    knots = np.concatenate([[0.0], null])
    exceedance = np.concatenate([[1.0], (1.0 + draws - np.arange(draws)) / (draws + 1)])
    k = -ndtri(np.interp(scores, knots, exceedance) / 2)
    beyond = scores > null[-1]
    k[beyond] = -ndtri(0.5 / (draws + 1)) * scores[beyond] / null[-1]
    return np.maximum(k, 0.0)


def out_of_fold_maximum(
    reference: Matrix,
    directions: Matrix,
    *,
    shrink: float | None,
    robust: bool,
    folds: int = 4,
    floor: Matrix | float = 0.0,
) -> float:
    """Largest score that a stretch of the reference gets from the rest of it; 0 when it is too short."""
    pieces = np.array_split(np.arange(len(reference)), folds)
    if min(len(piece) for piece in pieces) == 0:
        return 0.0
    worst = 0.0
    for piece in pieces:
        rest = np.setdiff1d(np.arange(len(reference)), piece)
        model = Projection.fit(reference[rest], directions, shrink=shrink, robust=robust, floor=floor)
        worst = max(worst, float(model.score(model.standardise(reference[piece]))[0].max()))
    return worst
