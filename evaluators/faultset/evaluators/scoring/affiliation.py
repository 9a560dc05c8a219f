"""Affiliation precision and recall (Huet et al., KDD 2022): how near predictions are to events, by zones.

Time is cut into zones at the midpoints between events. A prediction counts by the probability that a random instant of
the zone would lie further away. Kind to noise and to detectors that are always on (both near 0.7), therefore read as
the lift over always-on, and not in the tables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from faultset.evaluators.scoring.alarms import Range

_CELLS = 4000


def affiliation(truth: Sequence[Range], found: Sequence[Range], length: int) -> tuple[float, float]:
    """Precision and recall of predicted ranges in `[0, length)`; precision NaN where nothing was predicted.

    Integrals are taken over a grid of 4000 cells in each zone.
    """
    if not truth:
        return math.nan, math.nan
    borders = [0.0, *((b + c) / 2 for (_, b), (c, _) in itertools.pairwise(truth)), float(length)]
    scores = [
        _zone(low, high, event, [(max(a, low), min(b, high)) for a, b in found if a < high and b > low])
        for event, low, high in zip(truth, borders[:-1], borders[1:], strict=True)
    ]
    precisions = [precision for precision, _ in scores if not math.isnan(precision)]
    return (
        float(np.mean(precisions)) if precisions else math.nan,
        float(np.mean([recall for _, recall in scores])),
    )


def _zone(low: float, high: float, event: Range, found: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if not found:
        return math.nan, 0.0
    away = np.sort(_distance(_grid(low, high), [event]))
    inside = np.concatenate([_grid(a, b) for a, b in found])
    weights = np.concatenate([np.full(_CELLS, b - a) for a, b in found])
    distance = _distance(inside, [event])
    beyond = np.where(distance == 0, 1.0, 1.0 - np.searchsorted(away, distance) / _CELLS)
    points = _grid(*event)
    gap = _distance(points, found)
    left = np.maximum(0.0, points - gap - low)
    right = np.maximum(0.0, high - points - gap)
    return float(np.average(beyond, weights=weights)), float(np.mean((left + right) / (high - low)))


def _grid(low: float, high: float) -> npt.NDArray[np.float64]:
    return low + (np.arange(_CELLS) + 0.5) * (high - low) / _CELLS


def _distance(points: npt.NDArray[np.float64], ranges: Sequence[tuple[float, float]]) -> npt.NDArray[np.float64]:
    each = [np.maximum(0.0, np.maximum(low - points, points - high)) for low, high in ranges]
    return np.min(each, axis=0)
