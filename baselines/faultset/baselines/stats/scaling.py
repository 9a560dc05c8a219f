"""Distance from normal in units of the healthy spread, whatever the unit of a series is.

A spread has floors, or the first small change of a constant series would be infinitely many spreads. They are shares of
what is measured, never amounts: a series in bytes and the same in gigabytes deviate alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri, stdtrit

Matrix = npt.NDArray[np.float64]

RELATIVE_FLOOR = 0.01
ABSENT_Z = 10.0
FIRST_MOVE_Z = 10.0
"""Of a series that moves for the first time, when nothing says how much such series move."""
MAD_TO_SD = 1.4826
METRIC_SHARE = 0.25


def with_floor(spread: Matrix, center: Matrix) -> Matrix:
    """Raise a spread to one percent of the level it is measured at; it stays 0 where a series was always 0."""
    return np.maximum(spread, RELATIVE_FLOOR * np.abs(center))


def mean_and_sd(reference: Matrix, *, ddof: int = 0) -> tuple[Matrix, Matrix]:
    """Mean and floored standard deviation of each column, leaving gaps out."""
    present = np.isfinite(reference)
    count = present.sum(axis=0)
    filled = np.where(present, reference, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    squares = np.where(present, (reference - mean) ** 2, 0.0).sum(axis=0)
    sd = np.sqrt(squares / np.maximum(count - ddof, 1))
    return mean, with_floor(sd, mean)


def median_and_mad(reference: Matrix) -> tuple[Matrix, Matrix]:
    """Median and floored, normal-consistent median absolute deviation of each column, leaving gaps out."""
    present = np.where(np.isfinite(reference), reference, np.nan)
    (median,) = np.nan_to_num(quantiles(present, (0.5,)))
    (mad,) = MAD_TO_SD * np.nan_to_num(quantiles(np.abs(present - median), (0.5,)))
    return median, with_floor(mad, median)


def median_and_iqr(reference: Matrix) -> tuple[Matrix, Matrix]:
    """Median and floored interquartile range of each column; columns must not be wholly empty."""
    low, median, high = quantiles(reference, (0.25, 0.5, 0.75))
    return median, with_floor(high - low, median)


def quantiles(values: Matrix, shares: Sequence[float]) -> Matrix:
    """Quantiles of each column, leaving gaps (NaN) out; NaN for a column without any value.

    The same as `numpy.nanquantile` with linear interpolation, in one sort for all columns.

    Returns
    -------
    Matrix
        [quantile, column]
    """
    if not len(values):
        return np.full((len(shares), values.shape[1]), np.nan)
    ordered = np.sort(values, axis=0)
    last = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0)
    place = np.asarray(shares)[:, None] * last
    below = np.floor(place).astype(int)
    above = np.minimum(below + 1, last)
    low, high = np.take_along_axis(ordered, below, axis=0), np.take_along_axis(ordered, above, axis=0)
    return low + (place - below) * (high - low)


def with_metric_floor(spread: Matrix, series: Sequence[tuple[str, str]], *, share: float = METRIC_SHARE) -> Matrix:
    """Raise each spread to the floor of its metric."""
    return np.maximum(spread, metric_floor(spread, series, share=share))


def metric_floor(spread: Matrix, series: Sequence[tuple[str, str]], *, share: float = METRIC_SHARE) -> Matrix:
    """Return a share of the spread that the metric of each series has over all services.

    An idle service's counters tick in quanta: one hundredth of a second of CPU after a minute of none is many
    standard deviations of its own, and nothing on the scale on which CPU moves in the system.

    Parameters
    ----------
    series
        (service, metric) of each column.
    """
    names, code = np.unique([metric for _, metric in series], return_inverse=True)
    squares = np.bincount(code, weights=spread**2, minlength=len(names))
    rms = np.sqrt(squares / np.maximum(np.bincount(code, minlength=len(names)), 1))
    return share * rms[code]


def varies(samples: Matrix) -> npt.NDArray[np.bool_]:
    """Return which columns have at least two different values, leaving gaps out.

    >>> varies(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, 4.0]])).tolist()
    [False, True, False]
    """
    return np.fmin.reduce(samples, axis=0, initial=np.nan) < np.fmax.reduce(samples, axis=0, initial=np.nan)


def deviations(values: Matrix, center: Matrix, scale: Matrix, absent: npt.NDArray[np.bool_]) -> Matrix:
    """Signed z of each value; 0 where there is no sample, `ABSENT_Z` where a series has stopped.

    Where the scale is 0, a value other than the center is `FIRST_MOVE_Z` away.
    """
    away = values - center
    moves = np.broadcast_to(np.asarray(scale) > 0, away.shape)
    z = np.divide(away, scale, out=FIRST_MOVE_Z * np.sign(away), where=moves)
    z[~np.isfinite(z)] = 0.0
    z[absent] = ABSENT_Z
    return z


def sustained(z: Matrix, steps: int) -> Matrix:
    """Smallest |z| of each series over the last `steps` rows: what a single spike does not reach."""
    padded = np.vstack([np.zeros((steps - 1, z.shape[1])), np.abs(z)])
    return np.lib.stride_tricks.sliding_window_view(padded, steps, axis=0).min(axis=-1)


LEVEL = 0.0027
"""Probability that a normal value lies beyond three standard deviations."""


def bonferroni_sigmas(series: int, *, level: float = LEVEL, samples: int | None = None) -> float:
    """Sigmas beyond which one of `series` independent normal values lies with probability `level`.

    With a number of samples, it allows for mean and spread being estimated from them: Student's prediction interval.

    >>> round(bonferroni_sigmas(1), 2), round(bonferroni_sigmas(100), 2)
    (3.0, 4.2)
    >>> round(bonferroni_sigmas(100, samples=40), 2)
    4.81
    """
    tail = level / (2 * max(series, 1))
    if samples is None or samples < 2:
        return -float(ndtri(tail))
    return -float(stdtrit(samples - 1, tail) * np.sqrt(1 + 1 / samples))


def reference_limit(scores: Matrix, *, least: float = 0.0, level: float = LEVEL) -> float:
    """Limit that a healthy sample passes with probability `level`, and none of the held-out scores does.

    Student's prediction interval from as many scores as there are.

    >>> round(reference_limit(np.array([1.0, 2.0, 3.0] * 16)), 2)
    4.64
    """
    if len(scores) < 2:
        return max(least, float(scores.max(initial=0.0)))
    sigmas = bonferroni_sigmas(1, level=level, samples=len(scores))
    return max(least, float(scores.max()), float(scores.mean() + sigmas * scores.std(ddof=1)))


def trusted_input() -> AbstractContextManager[None]:
    """Let scikit-learn take parameters for valid and input for finite, under `with`."""
    from sklearn import config_context

    return config_context(skip_parameter_validation=True, assume_finite=True)


Ints = npt.NDArray[np.int64]
_LEAST_TABLE = 1 << 12


class Distinct(NamedTuple):
    """The distinct numbers of some rows."""

    values: Ints
    """[k] ascending."""
    first: Ints
    """[k] row in which each comes first."""
    code: Ints
    """[n] place of each row's number in `values`."""


def distinct(numbers: Ints) -> Distinct:
    """Find the distinct numbers, as `numpy.unique` does with its index and its inverse.

    >>> distinct(np.array([70, 20, 70]))
    Distinct(values=array([20, 70]), first=array([1, 0]), code=array([1, 0, 1]))
    """
    rows = len(numbers)
    if not rows:
        nothing = np.zeros(0, dtype=np.int64)
        return Distinct(nothing, nothing, nothing)
    lowest = int(numbers.min())
    width = int(numbers.max()) - lowest + 1
    if width <= max(_LEAST_TABLE, rows):
        key = numbers - lowest
        first = _first_rows(key, width)
        present = np.flatnonzero(first >= 0)
        place = np.empty(width, dtype=np.int64)
        place[present] = np.arange(len(present))
        return Distinct(present + lowest, first[present], place[key])
    code, values = pd.factorize(numbers, sort=True)
    return Distinct(values, _first_rows(code, len(values)), code)


def _first_rows(key: npt.NDArray[np.integer], width: int) -> Ints:
    """Return the first row of each key below `width`, -1 for those that no row has."""
    first = np.full(width, -1, dtype=np.int64)
    # the last assignment stands
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    return first
