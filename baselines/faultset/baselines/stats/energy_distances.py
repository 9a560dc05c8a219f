"""Energy distance between two samples of many series at once, with p-values by permutation."""

from __future__ import annotations

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
    gaps, labels = _sorted_gaps(first, second)
    return 2 * (_balance(labels, len(first), len(second))[:-1] ** 2 * gaps).sum(axis=0)


def permutation_p_values(
    first: Matrix, second: Matrix, *, draws: int = 499, rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Energy distance of each column and the share of random labellings that reach it.

    Returns
    -------
    distance, p
        [d] each; p is at least 1 / (draws + 1).

    Notes
    -----
    Whichever sample is the k-th smallest, a random labelling gives it either label with the same probability. So
    labels are drawn for ranks, once for all series, and the permuted distances are one matrix product.
    """
    gaps, labels = _sorted_gaps(first, second)
    n, m = len(first), len(second)
    observed = 2 * (_balance(labels, n, m)[:-1] ** 2 * gaps).sum(axis=0)
    drawn = rng.permuted(np.tile(np.arange(n + m) < n, (draws, 1)), axis=1)
    permuted = 2 * (_balance(drawn.T, n, m)[:-1].T ** 2 @ gaps)
    reached = (permuted >= observed * (1 - 1e-12)).sum(axis=0)
    return observed, (1 + reached) / (draws + 1)


def _sorted_gaps(first: Matrix, second: Matrix) -> tuple[Matrix, np.ndarray]:
    pooled = np.vstack([first, second])
    order = np.argsort(pooled, axis=0, kind="stable")
    return np.diff(np.take_along_axis(pooled, order, axis=0), axis=0), order < len(first)


def _balance(labels: np.ndarray, n: int, m: int) -> Matrix:
    """Difference of the two distribution functions after each rank, which are the rows of the labels."""
    return np.cumsum(np.where(labels, 1 / n, -1 / m), axis=0)
