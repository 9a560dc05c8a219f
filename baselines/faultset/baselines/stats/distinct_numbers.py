"""Distinct numbers among many rows, without sorting the rows: there are few of them where rows have kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

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
