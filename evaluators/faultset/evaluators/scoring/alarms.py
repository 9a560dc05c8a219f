"""Score alarms against faults, and the scores of single samples.

Ranges are half-open, in samples or nanoseconds; one call uses one unit. Point-adjusted F1 is not offered: a detector
that flags at random reaches high values of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow

GAP_S = 30
"""Alarms closer than this are one alarm."""
Range = tuple[int, int]


def events(flags: npt.ArrayLike) -> list[Range]:
    """Half-open runs of true samples.

    Examples
    --------
    >>> events([0, 1, 1, 0, 1])
    [(1, 3), (4, 5)]
    """
    edges = np.diff(np.concatenate(([0], np.asarray(flags, dtype=bool).astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def join(runs: Sequence[Range], gap: int) -> list[Range]:
    """Merge neighbouring sorted runs whose distance is at most `gap`."""
    joined: list[Range] = []
    for start, end in runs:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def outside(runs: Sequence[Range], pauses: Sequence[Range]) -> list[Range]:
    """Set aside what begins while a fault pauses: a run begins when the pause ends, or is none if it ends before.

    Examples
    --------
    >>> outside([(2, 4), (6, 12), (13, 15)], [(5, 10), (12, 20)])
    [(2, 4), (10, 12)]
    """
    kept = []
    for start, end in runs:
        begin = next((until for since, until in pauses if since <= start < until), start)
        if begin < end:
            kept.append((begin, end))
    return kept


def timed_alarms(times_ns: npt.ArrayLike, flags: npt.ArrayLike, gap_ns: int) -> list[Range]:
    """Alarms in nanoseconds: from the first flagged sample to the sample after the last one.

    The last sample of a series has no successor and is taken to last as long as the median step.
    """
    times = np.asarray(times_ns, dtype=np.int64)
    if len(times) == 0:
        return []
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    ends = np.append(times[1:], times[-1] + step)
    return join([(int(times[a]), int(ends[b - 1])) for a, b in events(flags)], gap_ns)


def true_alarms(truth: Sequence[Range], found: Sequence[Range], grace: int = 0) -> list[Range]:
    """Alarms whose *onset* lies in an event or in the `grace` after it.

    Counting onsets instead of overlaps is what stops a detector that is always on: it has one alarm, and
    that alarm began before the event.
    """
    return [alarm for alarm in found if any(a <= alarm[0] < b + grace for a, b in truth)]


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


def alarms_of(row: ResultRow, threshold: float | None = None) -> list[Range]:
    """Return all alarms of a row: runs of as many flags as its detector needs, joined across short gaps.

    The onset of an alarm is when it was raised, so that a run of three flags of which two are needed begins at the
    second. With a threshold, scores above it are the flags. A run that begins while an intermittent fault pauses counts
    from when the fault is back, if it lasts so long.
    """
    answer = row.answer
    if row.alarm_ns is None and threshold is None:
        return []
    times = np.asarray(answer.get("times_ns", []), dtype=np.int64)
    needed = answer.get("consecutive")
    if threshold is not None:
        flags = np.asarray(answer.get("scores", []), dtype=float) > threshold
        needed = needed or 1
    else:
        flags = np.frombuffer(answer.get("flags", "").encode(), dtype=np.uint8) == ord("1")
        if needed is None or len(times) == 0:
            assert row.alarm_ns is not None
            return outside([(row.alarm_ns, row.alarm_ns + 1)], row.truth.pauses)
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    ends = np.append(times[1:], times[-1:] + step)
    runs = [(int(times[a + needed - 1]), int(ends[b - 1])) for a, b in events(flags) if b - a >= needed]
    return join(outside(runs, row.truth.pauses), GAP_S * SECOND_NS)
