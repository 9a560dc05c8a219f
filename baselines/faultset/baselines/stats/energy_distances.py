"""Energy distance between two samples of many series at once, with p-values by permutation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faultset.baselines.stats.scaling import Matrix


def energy_distances(first: Matrix, second: Matrix) -> Matrix:
    """Squared energy distance of each column: 2 E|X-Y| - E|X-X'| - E|Y-Y'|.

    Parameters
    ----------
    first, second
        [n, d] and [m, d] finite values.

    Notes
    -----
    On a line it is twice the integral of the squared difference of the two distribution functions, which needs a
    sort instead of all pairs.

    Examples
    --------
    >>> energy_distances(np.zeros((3, 1)), np.ones((2, 1)))
    array([2.])
    """
    return ranked_samples(first, second).distances


@dataclass(frozen=True, kw_only=True)
class RankedSamples:
    """Two samples of many series, with the values of both in one order."""

    first: int
    second: int
    """Values of each series in either sample."""
    gaps: Matrix
    """[first + second - 1, d] from each value to the next."""
    distances: Matrix
    """[d] energy distance of each series."""


def ranked_samples(first: Matrix, second: Matrix) -> RankedSamples:
    """Sort two samples together, series by series."""
    pooled = np.vstack([first, second])
    order = np.argsort(pooled, axis=0, kind="stable")
    gaps = np.diff(np.take_along_axis(pooled, order, axis=0), axis=0)
    n, m = len(first), len(second)
    distances = 2 * (_balance(order < n, n, m)[:-1] ** 2 * gaps).sum(axis=0)
    return RankedSamples(first=n, second=m, gaps=gaps, distances=distances)


def permutation_p_values(samples: RankedSamples, *, draws: int = 499, rng: np.random.Generator) -> Matrix:
    """Share of random labellings that reach the energy distance of each column, at least 1 / (draws + 1).

    Notes
    -----
    Whichever sample is the k-th smallest, a random labelling gives it either label with the same probability. So
    labels are drawn for ranks, once for all series, and the permuted distances are one matrix product.
    """
    n, m = samples.first, samples.second
    drawn = rng.permuted(np.tile(np.arange(n + m) < n, (draws, 1)), axis=1)
    permuted = 2 * (_balance(drawn.T, n, m)[:-1].T ** 2 @ samples.gaps)
    reached = (permuted >= samples.distances * (1 - 1e-12)).sum(axis=0)
    return (1 + reached) / (draws + 1)


def _balance(labels: np.ndarray, n: int, m: int) -> Matrix:
    """Difference of the two distribution functions after each rank, which are the rows of the labels."""
    return np.cumsum(np.where(labels, 1 / n, -1 / m), axis=0)
