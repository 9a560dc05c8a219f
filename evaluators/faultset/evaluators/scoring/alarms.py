"""Detection as an operator sees it: alarms, events they belong to, and the time until the first true one.

An event is a half-open range of samples or nanoseconds; the functions do not care which, as long as one
call uses one unit.
"""

from __future__ import annotations

from collections.abc import Sequence

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
