"""Tests of independence between series, given others: by chi-square on bins, by partial correlation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtr

from faultset.baselines.stats.scaling import Matrix

Codes = npt.NDArray[np.int64]


def kmeans_bins(series: Matrix, *, bins: int = 5, rounds: int = 100) -> Codes:
    """Sort the values of each column into bins around centres that k-means finds on the line.

    Centres begin in the middle of equal bins over the range, as in scikit-learn's `KBinsDiscretizer`, but all
    columns are done at once. A constant column has one bin.
    """
    low, high = series.min(axis=0), series.max(axis=0)
    edges = low + (high - low) * (np.arange(bins)[:, None] + 0.5) / bins
    centres = edges
    code = np.zeros(series.shape, dtype=np.int64)
    columns = np.arange(series.shape[1])
    for _ in range(rounds):
        limits = (centres[1:] + centres[:-1]) / 2
        code = (series[None] >= limits[:, None]).sum(axis=0)
        cell = (code * series.shape[1] + columns).ravel()
        size = bins * series.shape[1]
        count = np.bincount(cell, minlength=size).reshape(bins, -1)
        total = np.bincount(cell, weights=series.ravel(), minlength=size).reshape(bins, -1)
        moved = np.sort(np.where(count > 0, total / np.maximum(count, 1), centres), axis=0)
        if np.allclose(moved, centres, rtol=1e-9, atol=0):
            break
        centres = moved
    return np.where(high > low, code, 0)


def chi_square(x: Codes, y: Codes, given: Sequence[Codes] = ()) -> tuple[float, float]:
    """Test whether x and y are independent within each combination of the given codes.

    Returns
    -------
    p, statistic
        Degrees of freedom count only values that occur within a combination; without any, p is 1.
    """
    stratum = np.zeros(len(x), dtype=np.int64)
    for code in given:
        stratum = np.unique(stratum * (int(code.max(initial=0)) + 1) + code, return_inverse=True)[1]
    xs, ys = int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1
    strata = int(stratum.max(initial=0)) + 1
    table = np.bincount((stratum * xs + x) * ys + y, minlength=strata * xs * ys).reshape(strata, xs, ys)
    by_x, by_y = table.sum(axis=2), table.sum(axis=1)
    size = by_x.sum(axis=1)
    expected = by_x[:, :, None] * by_y[:, None, :] / np.maximum(size, 1)[:, None, None]
    some = expected > 0
    statistic = float(((table[some] - expected[some]) ** 2 / expected[some]).sum())
    free = int((((by_x > 0).sum(axis=1) - 1) * ((by_y > 0).sum(axis=1) - 1))[size > 0].sum())
    return (float(chdtrc(free, statistic)), statistic) if free > 0 else (1.0, 0.0)


def partial_correlation(x: Matrix, y: Matrix, given: Matrix) -> float:
    """Correlation of what is left of x and of y after regression on the given columns; 0 where nothing is left.

    Parameters
    ----------
    x, y
        [n]
    given
        [n, p]
    """
    both = np.column_stack([x, y])
    before = np.column_stack([np.ones(len(both)), given])
    rest = both - before @ np.linalg.lstsq(before, both, rcond=None)[0]
    squares = (rest**2).sum(axis=0)
    # Rounding leaves something even of a constant.
    least = 1e-10 * ((both - both.mean(axis=0)) ** 2).sum(axis=0) + 1e-24 * (both**2).sum(axis=0)
    if (squares <= least).any():
        return 0.0
    return float(np.clip(rest[:, 0] @ rest[:, 1] / np.sqrt(squares.prod()), -1.0, 1.0))


def correlation_p_value(correlation: Matrix | float, samples: int, given: int = 0) -> Matrix:
    """Two-sided p-value of partial correlations by Fisher's z; 1 where there are too few samples.

    >>> float(correlation_p_value(0.5, 28).round(4))
    0.006
    """
    free = samples - given - 3
    if free < 1:
        return np.ones_like(np.asarray(correlation, dtype=float))
    z = np.arctanh(np.clip(np.abs(correlation), 0.0, 1 - 1e-12)) * np.sqrt(free)
    return np.asarray(2 * ndtr(-z), dtype=float)
