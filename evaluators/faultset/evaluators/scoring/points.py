"""Detection sample by sample: point-wise and range-based scores, AUC-PR and VUS-PR.

These are companions of the event scores, not headlines. Point-adjusted F1 is not offered: a detector that
flags at random reaches high values of it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from faultset.evaluators.scoring.alarms import Range, events


def average_precision(truth: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Area under the precision-recall curve in steps; NaN without positive samples.

    Its floor is the share of positive samples. Samples without a score count as the least anomalous.
    """
    y, s = np.asarray(truth, dtype=bool), _without_nan(scores)
    if not y.any():
        return math.nan
    order = np.argsort(-s, kind="stable")
    last_of_tie = _last_of_ties(s[order])
    hits = np.cumsum(y[order])[last_of_tie]
    flagged = np.flatnonzero(last_of_tie) + 1
    return float(np.sum(np.diff(np.concatenate(([0], hits))) / y.sum() * hits / flagged))


def vus_pr(truth: npt.ArrayLike, scores: npt.ArrayLike, buffer: int) -> float:
    """Volume under the precision-recall surface (Paparrizos et al., VLDB 2022) for buffers 0..`buffer` samples.

    The step form that TSB-AD uses; aeon integrates trapezoids and gives other numbers. The floor is not the
    share of positives and grows with the buffer, and a large buffer forgives lateness: report it with the
    buffer and the value of a constant score. NaN without positive samples.
    """
    y = np.asarray(truth, dtype=bool)
    if not y.any():
        return math.nan
    s = _without_nan(scores)
    order = np.argsort(-s, kind="stable")
    last_of_tie = _last_of_ties(s[order])
    flagged = np.flatnonzero(last_of_tie) + 1
    cuts = s[order][last_of_tie]
    softened, zones = _softened(y.tobytes(), buffer)
    soft = softened[:, order]
    hit = np.cumsum(soft, axis=1)[:, last_of_tie]
    buffered = np.cumsum(np.where(y[order], 0.0, soft), axis=1)[:, last_of_tie]
    # a threshold touches a zone as soon as it lets the zone's best sample through
    touched = np.array([sum(cuts <= s[a:b].max() for a, b in ranges) / len(ranges) for ranges in zones])
    positives = int(y.sum())
    recall = np.minimum(1.0, hit / ((positives + positives + buffered) / 2)) * touched
    return float(np.mean(np.sum(np.diff(recall, axis=1, prepend=0.0) * hit / flagged, axis=1)))


def _last_of_ties(ordered: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return np.append(ordered[1:] != ordered[:-1], True)


def _without_nan(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    values = np.asarray(scores, dtype=float)
    return np.where(np.isnan(values), -np.inf, values)


@lru_cache(maxsize=256)
def _softened(truth: bytes, buffer: int) -> tuple[npt.NDArray[np.float64], tuple[tuple[Range, ...], ...]]:
    """Return [buffer + 1, n] truth with ramps at its edges, and its runs above zero, for each width.

    All detectors that run on an episode are compared with the same truth.
    """
    exact = np.frombuffer(truth, dtype=bool)
    soft = np.stack([_soften(exact, width) for width in range(buffer + 1)])
    return soft, tuple(tuple(events(row > 0)) for row in soft)


def _soften(truth: npt.NDArray[np.bool_], width: int) -> npt.NDArray[np.float64]:
    soft = truth.astype(float)
    ramp = np.sqrt(1 - np.arange(1, width // 2 + 1) / width) if width > 1 else np.empty(0)
    for start, end in events(truth):
        before = ramp[:start]
        soft[start - len(before) : start] += before[::-1]
        after = ramp[: len(soft) - end]
        soft[end : end + len(after)] += after
    return np.minimum(soft, 1.0)
