"""Compare alarms with faults, and measure how well scores separate the samples of a fault.

Ranges are half-open, in samples or in nanoseconds. Point-adjusted F1 is left out, because a detector that flags samples
at random scores high.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow

GAP_S = 30
"""Alarms that are at most this many seconds apart are merged."""
Range = tuple[int, int]


def find_runs(flags: npt.ArrayLike) -> list[Range]:
    """Return the half-open runs of true samples.

    Examples
    --------
    >>> find_runs([0, 1, 1, 0, 1])
    [(1, 3), (4, 5)]
    """
    edges = np.diff(np.concatenate(([0], np.asarray(flags, dtype=bool).astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def merge_runs(runs: Sequence[Range], gap: int) -> list[Range]:
    """Merge sorted runs whose distance is at most `gap`."""
    merged: list[Range] = []
    for start, end in runs:
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def skip_pauses(runs: Sequence[Range], pauses: Sequence[Range]) -> list[Range]:
    """Move the start of runs that begin in a pause to the end of the pause; drop runs that end within it.

    Examples
    --------
    >>> skip_pauses([(2, 4), (6, 12), (13, 15)], [(5, 10), (12, 20)])
    [(2, 4), (10, 12)]
    """
    remaining = []
    for start, end in runs:
        begin = next((pause_end for pause_start, pause_end in pauses if pause_start <= start < pause_end), start)
        if begin < end:
            remaining.append((begin, end))
    return remaining


def true_alarms(faults: Sequence[Range], alarms: Sequence[Range]) -> list[Range]:
    """Return the alarms that begin in a fault.

    An overlap is not enough, because the one long alarm of a detector that always fires overlaps every fault.
    """
    return [alarm for alarm in alarms if any(a <= alarm[0] < b for a, b in faults)]


def average_precision(truth: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return the area under the precision-recall curve in steps; NaN without positive samples.

    Guessing scores the share of positive samples. Samples without a score rank last.
    """
    y, s = np.asarray(truth, dtype=bool), _replace_nan(scores)
    if not y.any():
        return math.nan
    order = np.argsort(-s, kind="stable")
    last_of_tie = _find_last_of_ties(s[order])
    hits = np.cumsum(y[order])[last_of_tie]
    flagged = np.flatnonzero(last_of_tie) + 1
    return float(np.sum(np.diff(np.concatenate(([0], hits))) / y.sum() * hits / flagged))


class RangeVolumes(NamedTuple):
    """Volumes under the ROC and precision-recall surfaces; see `compute_range_volumes`."""

    roc: float
    pr: float


def vus_pr(truth: npt.ArrayLike, scores: npt.ArrayLike, buffer: int) -> float:
    """Return the volume under the precision-recall surface; see `compute_range_volumes`."""
    return compute_range_volumes(truth, scores, buffer).pr


def compute_range_volumes(truth: npt.ArrayLike, scores: npt.ArrayLike, buffer: int) -> RangeVolumes:
    """Return the volumes under the ROC and the precision-recall surface (Paparrizos et al., VLDB 2022).

    Buffers go from 0 to `buffer` samples. The precision-recall sum is in steps, and the ROC in trapezoids, as in
    TSB-AD; aeon integrates trapezoids in both and gives other numbers. A larger buffer forgives more delay and raises
    the values of a constant score, so report the buffer and the value of a constant score
    too. NaN without positive samples.
    """
    y = np.asarray(truth, dtype=bool)
    if not y.any():
        return RangeVolumes(math.nan, math.nan)
    s = _replace_nan(scores)
    order = np.argsort(-s, kind="stable")
    last_of_tie = _find_last_of_ties(s[order])
    flagged = np.flatnonzero(last_of_tie) + 1
    cuts = s[order][last_of_tie]
    soft_truths, zones = _soften_by_width(y.tobytes(), buffer)
    soft = soft_truths[:, order]
    hit = np.cumsum(soft, axis=1)[:, last_of_tie]
    buffered = np.cumsum(np.where(y[order], 0.0, soft), axis=1)[:, last_of_tie]
    # a threshold touches a zone if the zone's highest score reaches it
    touched = np.array([sum(cuts <= s[a:b].max() for a, b in ranges) / len(ranges) for ranges in zones])
    positives = int(y.sum()) + buffered / 2
    recall = np.minimum(1.0, hit / positives) * touched
    precision_recall = np.sum(np.diff(recall, axis=1, prepend=0.0) * hit / flagged, axis=1)
    negatives = np.maximum(len(y) - positives, 1.0)
    fall_out = np.minimum(1.0, (flagged - hit) / negatives)
    widths = np.diff(fall_out, axis=1, prepend=0.0, append=1.0)
    heights = np.pad(recall, ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
    roc = np.sum(widths * (heights[:, 1:] + heights[:, :-1]) / 2, axis=1)
    return RangeVolumes(float(np.mean(roc)), float(np.mean(precision_recall)))


def _find_last_of_ties(ordered: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return np.append(ordered[1:] != ordered[:-1], True)


def _replace_nan(scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    values = np.asarray(scores, dtype=float)
    return np.where(np.isnan(values), -np.inf, values)


@lru_cache(maxsize=256)
def _soften_by_width(truth: bytes, buffer: int) -> tuple[npt.NDArray[np.float64], tuple[tuple[Range, ...], ...]]:
    """Return [buffer + 1, n] truths with ramps of each width at the edges, and their runs above zero.

    The cache serves all detectors of an episode.
    """
    exact = np.frombuffer(truth, dtype=bool)
    soft = np.stack([_soften(exact, width) for width in range(buffer + 1)])
    return soft, tuple(tuple(find_runs(row > 0)) for row in soft)


def _soften(truth: npt.NDArray[np.bool_], width: int) -> npt.NDArray[np.float64]:
    soft = truth.astype(float)
    ramp = np.sqrt(1 - np.arange(1, width // 2 + 1) / width) if width > 1 else np.empty(0)
    for start, end in find_runs(truth):
        left_ramp = ramp[:start]
        soft[start - len(left_ramp) : start] += left_ramp[::-1]
        right_ramp = ramp[: len(soft) - end]
        soft[end : end + len(right_ramp)] += right_ramp
    return np.minimum(soft, 1.0)


def list_alarms(row: ResultRow, threshold: float | None = None) -> list[Range]:
    """Return all alarms of a row: runs of flags that are long enough, joined across short gaps.

    An alarm begins at the last flag that the detector needs to raise it. With a threshold, samples with a score above
    it are flagged. An alarm that begins in a pause of an intermittent fault counts from the end of the pause; if it
    ends within the pause, it does not count.
    """
    answer = row.answer
    if row.alarm_ns is None and threshold is None:
        return []
    times = np.asarray(answer.get("times_ns", []), dtype=np.int64)
    min_run = answer.get("consecutive")
    if threshold is not None:
        flags = np.asarray(answer.get("scores", []), dtype=float) > threshold
        min_run = min_run or 1
    else:
        flags = np.frombuffer(answer.get("flags", "").encode(), dtype=np.uint8) == ord("1")
        if min_run is None or len(times) == 0:
            assert row.alarm_ns is not None
            return skip_pauses([(row.alarm_ns, row.alarm_ns + 1)], row.truth.pauses)
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    ends = np.append(times[1:], times[-1:] + step)
    runs = [(int(times[a + min_run - 1]), int(ends[b - 1])) for a, b in find_runs(flags) if b - a >= min_run]
    return merge_runs(skip_pauses(runs, row.truth.pauses), GAP_S * SECOND_NS)


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

    `faults`, `alarms`: sorted intervals without overlaps, within the window.
    `window`: the time in which alarms count.

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
    return Affiliation(precision=float(np.mean(precisions)) if precisions else 0.0, recall=float(np.mean(recalls)))


def _list_instants(start: float, end: float) -> npt.NDArray[np.float64]:
    """Return the middles of equal parts of an interval."""
    return start + (np.arange(_POINT_COUNT) + 0.5) * (end - start) / _POINT_COUNT


def _compute_precision(fault: Range, alarms: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Return how near the alarms are to the fault.

    This is the mean, over all instants in alarms, of the probability that a random instant of the zone is farther from
    the fault than this instant.
    """
    values, lengths = [], []
    for a, b in alarms:
        times = _list_instants(a, b)
        distances = np.maximum(0.0, np.maximum(fault[0] - times, times - fault[1]))
        nearer = np.minimum(fault[1] + distances, end) - np.maximum(fault[0] - distances, start)
        values.append(float(np.mean(np.where(distances > 0, 1 - nearer / (end - start), 1.0))))
        lengths.append(b - a)
    return float(np.average(values, weights=lengths))


def _compute_recall(fault: Range, alarms: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Return how near the fault is to the alarms.

    This is the mean, over all instants of the fault, of the probability that a random instant of the zone is farther
    from this instant than the nearest alarm is.
    """
    times = _list_instants(*fault)
    distances = np.min([np.maximum(0.0, np.maximum(a - times, times - b)) for a, b in alarms], axis=0)
    nearer = np.minimum(times + distances, end) - np.maximum(times - distances, start)
    return float(np.mean(1 - nearer / (end - start)))
