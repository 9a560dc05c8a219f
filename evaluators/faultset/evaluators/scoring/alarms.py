"""Detection as an operator sees it: alarms, events they belong to, and the time until the first true one.

An event is a half-open range of samples or nanoseconds; the functions do not care which, as long as one
call uses one unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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


def alarms(flags: npt.ArrayLike, gap: int = 0) -> list[Range]:
    """Runs of flagged samples, joined where at most `gap` samples lie between them."""
    return join(events(flags), gap)


def join(runs: Sequence[Range], gap: int) -> list[Range]:
    """Merge neighbouring sorted runs whose distance is at most `gap`."""
    joined: list[Range] = []
    for start, end in runs:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


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


def event_scores(truth: Sequence[Range], found: Sequence[Range], grace: int = 0) -> tuple[float, float]:
    """Event precision and event recall.

    Precision is the share of alarms that are true, NaN without alarms; recall the share of events with at
    least one true alarm, NaN without events. Further alarms inside a found event change nothing in recall.
    """
    true = true_alarms(truth, found, grace)
    precision = len(true) / len(found) if found else math.nan
    hit = [any(a <= alarm[0] < b + grace for alarm in found) for a, b in truth]
    return precision, (sum(hit) / len(hit) if hit else math.nan)


def time_to_detect(onset: int, window_end: int, found: Sequence[Range], grace: int = 0) -> float:
    """Time from `onset` to the first alarm that begins in `[onset, window_end + grace)`; a miss is +inf.

    An alarm that is already on at the onset is a false alarm, not a detection after zero seconds.
    """
    starts = [start for start, _ in found if onset <= start < window_end + grace]
    return float(min(starts) - onset) if starts else math.inf


@dataclass(frozen=True, kw_only=True)
class DetectionTimes:
    """Summary of times to detect in which a miss is censored at the window's end, never dropped."""

    restricted_mean: float
    median: float
    rate_at: dict[float, float]
    found: int
    n: int


def summarise_times(
    times: Sequence[float], windows: Sequence[float], horizons: Sequence[float] = (30.0, 60.0, 300.0)
) -> DetectionTimes:
    """Restricted mean (a miss counts as the whole window), median (a miss is +inf), rate within horizons.

    The mean over detected episodes only is not offered: it improves when hard cases are missed.
    """
    if len(times) != len(windows):
        raise ValueError(f"{len(times)} times but {len(windows)} windows")
    if not times:
        nothing = dict.fromkeys(horizons, math.nan)
        return DetectionTimes(restricted_mean=math.nan, median=math.nan, rate_at=nothing, found=0, n=0)
    values = np.asarray(times, dtype=float)
    return DetectionTimes(
        restricted_mean=float(np.minimum(values, np.asarray(windows, dtype=float)).mean()),
        median=median_with_misses(values),
        rate_at={h: float((values <= h).mean()) for h in horizons},
        found=int(np.isfinite(values).sum()),
        n=len(values),
    )


def median_with_misses(times: npt.ArrayLike) -> float:
    """Median of times in which a miss is +inf; the upper middle value when the count is even.

    Averaging the two middle values would make a number out of half a miss.
    """
    ordered = np.sort(np.asarray(times, dtype=float))
    return float(ordered[len(ordered) // 2]) if len(ordered) else math.nan
