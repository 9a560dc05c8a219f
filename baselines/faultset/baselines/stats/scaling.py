"""Standardise series by their healthy mean and spread.

A spread is a standard deviation, median absolute deviation or interquartile range. Spreads have floors, because
otherwise the first small change of a constant series would be infinitely large. Floors are relative, so that a series
deviates equally in bytes and in gigabytes.
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
FIRST_CHANGE_Z = 10.0
"""Deviation of a value that differs from the center, if the spread is 0 even after the floors."""
MAD_TO_SD = 1.4826
METRIC_SHARE = 0.25


def with_floor(spread: Matrix, center: Matrix) -> Matrix:
    """Raise each spread to at least 1 % of the level; it stays 0 for a series that was always 0."""
    return np.maximum(spread, RELATIVE_FLOOR * np.abs(center))


def mean_and_sd(reference: Matrix, *, ddof: int = 0) -> tuple[Matrix, Matrix]:
    """Return the mean and the floored standard deviation of each column, ignoring gaps."""
    present = np.isfinite(reference)
    count = present.sum(axis=0)
    filled = np.where(present, reference, 0.0)
    mean = filled.sum(axis=0) / np.maximum(count, 1)
    squares = np.where(present, (reference - mean) ** 2, 0.0).sum(axis=0)
    sd = np.sqrt(squares / np.maximum(count - ddof, 1))
    return mean, with_floor(sd, mean)


def median_and_mad(reference: Matrix) -> tuple[Matrix, Matrix]:
    """Return the median and the floored, normal-consistent MAD of each column, ignoring gaps."""
    present = np.where(np.isfinite(reference), reference, np.nan)
    (median,) = np.nan_to_num(quantiles(present, (0.5,)))
    (mad,) = MAD_TO_SD * np.nan_to_num(quantiles(np.abs(present - median), (0.5,)))
    return median, with_floor(mad, median)


def median_and_iqr(reference: Matrix) -> tuple[Matrix, Matrix]:
    """Return the median and the floored interquartile range of each column; no column may be empty."""
    low, median, high = quantiles(reference, (0.25, 0.5, 0.75))
    return median, with_floor(high - low, median)


def quantiles(values: Matrix, shares: Sequence[float]) -> Matrix:
    """Return quantiles of each column, ignoring gaps; NaN for an empty column.

    Equals `numpy.nanquantile` with linear interpolation, but sorts all columns at once.

    Returns
    -------
    Matrix
        [quantile, column]
    """
    if not len(values):
        return np.full((len(shares), values.shape[1]), np.nan)
    ordered = np.sort(values, axis=0)
    last = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0)
    rank = np.asarray(shares)[:, None] * last
    lower = np.floor(rank).astype(int)
    upper = np.minimum(lower + 1, last)
    low, high = np.take_along_axis(ordered, lower, axis=0), np.take_along_axis(ordered, upper, axis=0)
    return low + (rank - lower) * (high - low)


def with_metric_floor(spread: Matrix, series: Sequence[tuple[str, str]], *, share: float = METRIC_SHARE) -> Matrix:
    """Raise each spread to the floor of its metric."""
    return np.maximum(spread, metric_floor(spread, series, share=share))


def metric_floor(spread: Matrix, series: Sequence[tuple[str, str]], *, share: float = METRIC_SHARE) -> Matrix:
    """Return a share of the spread of each series' metric over all services.

    Counters of idle services increase in small steps. After an idle minute, 0.01 s of CPU is many standard deviations
    of that series, but negligible compared with the CPU use of the system.

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
    """Return which columns have at least two different values, ignoring gaps.

    >>> varies(np.array([[1.0, 2.0, np.nan], [1.0, 3.0, 4.0]])).tolist()
    [False, True, False]
    """
    return np.fmin.reduce(samples, axis=0, initial=np.nan) < np.fmax.reduce(samples, axis=0, initial=np.nan)


def deviations(values: Matrix, center: Matrix, scale: Matrix, absent: npt.NDArray[np.bool_] | None = None) -> Matrix:
    """Return the signed z of each value: 0 for gaps, `ABSENT_Z` for series that stopped.

    If the scale is 0, values that differ from the center deviate by `FIRST_CHANGE_Z`.
    """
    deviation = values - center
    has_scale = np.broadcast_to(np.asarray(scale) > 0, deviation.shape)
    z = np.divide(deviation, scale, out=FIRST_CHANGE_Z * np.sign(deviation), where=has_scale)
    z[~np.isfinite(z)] = 0.0
    if absent is not None:
        z[absent] = ABSENT_Z
    return z


def sustained(z: Matrix, steps: int) -> Matrix:
    """Return the smallest |z| of each series over the last `steps` rows, so that short spikes do not count."""
    padded = np.vstack([np.zeros((steps - 1, z.shape[1])), np.abs(z)])
    return np.lib.stride_tricks.sliding_window_view(padded, steps, axis=0).min(axis=-1)


LEVEL = 0.0027
"""Probability that a normal value is more than three standard deviations from the mean."""


def bonferroni_sigmas(series: int, *, level: float = LEVEL, samples: int | None = None) -> float:
    """Return the sigmas that any of `series` independent normal values exceeds with probability `level`.

    If `samples` is given, mean and standard deviation are estimated from this number of samples, as in Student's
    prediction interval.

    >>> round(bonferroni_sigmas(1), 2), round(bonferroni_sigmas(100), 2)
    (3.0, 4.2)
    >>> round(bonferroni_sigmas(100, samples=40), 2)
    4.81
    """
    tail = level / (2 * max(series, 1))
    if samples is None or samples < 2:
        return -float(ndtri(tail))
    return -float(stdtrit(samples - 1, tail) * np.sqrt(1 + 1 / samples))


def reference_limit(scores: Matrix, *, minimum: float = 0.0, level: float = LEVEL) -> float:
    """Return a limit for new scores, computed from the held-out scores of healthy samples.

    It is the end of Student's prediction interval at `level`, or the largest held-out score if that is higher.

    >>> round(reference_limit(np.array([1.0, 2.0, 3.0] * 16)), 2)
    4.64
    """
    if len(scores) < 2:
        return max(minimum, float(scores.max(initial=0.0)))
    sigmas = bonferroni_sigmas(1, level=level, samples=len(scores))
    return max(minimum, float(scores.max()), float(scores.mean() + sigmas * scores.std(ddof=1)))


def trusted_input() -> AbstractContextManager[None]:
    """Return a context in which scikit-learn skips validation of parameters and input."""
    from sklearn import config_context

    return config_context(skip_parameter_validation=True, assume_finite=True)


Ints = npt.NDArray[np.int64]
_MIN_TABLE = 1 << 12


class Distinct(NamedTuple):
    """The distinct numbers of some rows."""

    values: Ints
    """[k] ascending."""
    first: Ints
    """[k] first row of each value."""
    code: Ints
    """[n] index of each row's number in `values`."""


def distinct(numbers: Ints) -> Distinct:
    """Return the distinct numbers, like `numpy.unique` with index and inverse.

    >>> distinct(np.array([70, 20, 70]))
    Distinct(values=array([20, 70]), first=array([1, 0]), code=array([1, 0, 1]))
    """
    rows = len(numbers)
    if not rows:
        empty = np.zeros(0, dtype=np.int64)
        return Distinct(empty, empty, empty)
    lowest = int(numbers.min())
    width = int(numbers.max()) - lowest + 1
    if width <= max(_MIN_TABLE, rows):
        key = numbers - lowest
        first = _first_rows(key, width)
        present = np.flatnonzero(first >= 0)
        code_of_key = np.empty(width, dtype=np.int64)
        code_of_key[present] = np.arange(len(present))
        return Distinct(present + lowest, first[present], code_of_key[key])
    code, values = pd.factorize(numbers, sort=True)
    return Distinct(values, _first_rows(code, len(values)), code)


def _first_rows(key: npt.NDArray[np.integer], width: int) -> Ints:
    """Return the first row of each key below `width`; -1 for missing keys."""
    first = np.full(width, -1, dtype=np.int64)
    # In reverse order, the last assignment is the first row.
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    return first
