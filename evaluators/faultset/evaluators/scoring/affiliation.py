"""Affiliation precision and recall: how near alarms and faults are to each other, compared with random alarms.

Each fault has a zone, the time that is nearer to it than to other faults. Within a zone, the precision of an instant
of an alarm is the chance that a random instant is farther from the fault. The recall of an instant of the fault is the
chance that a random alarm is farther from it than the nearest alarm.

References
----------
Huet, Navarro, Rossi, Local Evaluation of Time Series Anomaly Detection Algorithms, KDD 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from faultset.evaluators.scoring.alarms import Range

_POINT_COUNT = 200
"""Number of instants of an interval whose values are averaged."""


class Affiliation(NamedTuple):
    """Means over faults; NaN without faults."""

    precision: float
    """Over the zones with an alarm."""
    recall: float
    """Over all zones; a zone without an alarm counts as 0."""

    @property
    def f1(self) -> float:
        """Harmonic mean; 0 without alarms."""
        if math.isnan(self.recall):
            return math.nan
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total > 0 else 0.0


def compute_affiliation(faults: Sequence[Range], alarms: Sequence[Range], window: Range) -> Affiliation:
    """Return affiliation precision and recall.

    Parameters
    ----------
    faults, alarms
        Sorted intervals without overlaps, within the window.
    window
        The time in which alarms count.

    Examples
    --------
    >>> perfect = compute_affiliation([(40, 50)], [(40, 50)], (0, 100))
    >>> perfect.precision, perfect.recall
    (1.0, 1.0)
    """
    if not faults:
        return Affiliation(math.nan, math.nan)
    midpoints = [(first[1] + second[0]) / 2 for first, second in pairwise(faults)]
    precisions, recalls = [], []
    for fault, (start, end) in zip(faults, pairwise([window[0], *midpoints, window[1]]), strict=True):
        zone_alarms = [(max(a, start), min(b, end)) for a, b in alarms if a < end and start < b]
        if zone_alarms:
            precisions.append(_compute_precision(fault, zone_alarms, start, end))
        recalls.append(_compute_recall(fault, zone_alarms, start, end) if zone_alarms else 0.0)
    return Affiliation(
        precision=float(np.mean(precisions)) if precisions else 0.0,
        recall=float(np.mean(recalls)),
    )


def _list_instants(start: float, end: float) -> npt.NDArray[np.float64]:
    """Return the middles of equal parts of an interval."""
    return start + (np.arange(_POINT_COUNT) + 0.5) * (end - start) / _POINT_COUNT


def _compute_precision(fault: Range, alarms: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Return the mean over all alarm time of the chance that a random instant is farther from the fault."""
    values, lengths = [], []
    for a, b in alarms:
        times = _list_instants(a, b)
        distances = np.maximum(0.0, np.maximum(fault[0] - times, times - fault[1]))
        nearer = np.minimum(fault[1] + distances, end) - np.maximum(fault[0] - distances, start)
        values.append(float(np.mean(np.where(distances > 0, 1 - nearer / (end - start), 1.0))))
        lengths.append(b - a)
    return float(np.average(values, weights=lengths))


def _compute_recall(fault: Range, alarms: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Return the mean over the fault of the chance that a random instant is farther than the nearest alarm."""
    times = _list_instants(*fault)
    distances = np.min([np.maximum(0.0, np.maximum(a - times, times - b)) for a, b in alarms], axis=0)
    nearer = np.minimum(times + distances, end) - np.maximum(times - distances, start)
    return float(np.mean(1 - nearer / (end - start)))
