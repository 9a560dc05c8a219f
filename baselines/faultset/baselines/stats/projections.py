"""Multivariate K-sigma: distance from normal along many directions, calibrated by simulation.

The K-sigma score of a point is the largest number of standard deviations by which it leaves normal along any
direction. With all directions that is the Mahalanobis distance; random ones come close from below without
inverting a covariance matrix, so there may be more series than samples. What "three sigma" means in so many
dimensions is found by simulating the fitted normal model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from faultset.baselines.stats.scaling import Matrix, deviations, mean_and_sd, median_and_mad

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
