"""Draw the strength of faults, and describe its range as text."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np


def draw_log_uniform(rng: np.random.Generator, minimum: float, maximum: float, *, digits: int = 3) -> float:
    """Return a number between two positive ones, uniform on a logarithmic scale."""
    return round(math.exp(rng.uniform(math.log(minimum), math.log(maximum))), digits)


def percent_between(shares: Iterable[float]) -> str:
    """Return the range of shares as text.

    Examples
    --------
    >>> percent_between((0.15, 0.8))
    '15 to 80 %'
    """
    shares = tuple(shares)
    return f"{100 * min(shares):g} to {100 * max(shares):g} %"


def either(choices: Iterable[object]) -> str:
    """Join alternatives with commas and `or`.

    Examples
    --------
    >>> either(["10", "25", "50 %"])
    '10, 25 or 50 %'
    """
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last
