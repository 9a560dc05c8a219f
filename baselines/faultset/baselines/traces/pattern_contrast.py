"""Successions of events before and since an alarm: which changed, and in which order.

A pattern is a source and what followed it. Comparing how often a pattern came up confuses a fault with a change of
what users ask for; comparing what follows a source, given that the source came up, does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faultset.baselines.stats.distinct_numbers import distinct
from faultset.baselines.stats.scaling import Matrix
from faultset.baselines.traces.slow_spans import Ints
from faultset.baselines.traces.spans import Flags

LEAST_SUPPORT = 5
SIMILARITY = 0.05
# The value that chance exceeds once in a hundred, for one degree of freedom.
LEAST_G = 6.63


@dataclass(frozen=True, kw_only=True)
class Observations:
    """[n] times that something was seen to follow a source, all of one sort."""

    source: Ints
    target: Ints
    blamed: Ints
    """Number of the service that a change here speaks against."""
    pod: Ints
    """Number of its pod, or -1 where that is not known."""
    trace: Ints
    began_ns: Ints
    known_ns: Ints
    """When the target was there to be seen."""
    certainty: Matrix
    """Between 0 and 1: less where the change may as well lie elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """[p] patterns of one sort of observations."""

    code: Ints
    """[n] pattern of each observation."""
    example: Ints
    """Row of an observation that shows the pattern."""
    expected_row: Ints
    """Row of an observation of what followed the same source most often in the healthy time."""
    g: Matrix
    """Evidence that the pattern's share changed, twice the log-likelihood ratio."""
    surprise: Matrix
    """Logarithm of how much more often the target follows now; 0 for patterns that are not more frequent."""
    counts: Matrix
    """[p, 4] pattern and source in the healthy time, pattern and source since the alarm."""


def g_statistic(hits: Matrix, total: Matrix, other_hits: Matrix, other_total: Matrix) -> Matrix:
    """Twice the log-likelihood ratio of two shares against a common one.

    >>> g_statistic(np.array([0.0]), np.array([6.0]), np.array([9.0]), np.array([9.0])).round(2).tolist()
    [20.19]
    """
    both, everything = hits + other_hits, total + other_total
    cells = sum(map(_x_log_x, (hits, other_hits, total - hits, other_total - other_hits, everything)))
    margins = sum(map(_x_log_x, (total, other_total, both, everything - both)))
    return np.maximum(0.0, 2.0 * (cells - margins))


def _x_log_x(values: Matrix) -> Matrix:
    return np.where(values > 0, values * np.log(np.maximum(values, 1e-12)), 0.0)


def effective(counts: Matrix, similarity: float) -> Matrix:
    """Number of independent observations that as many similar ones are worth.

    Requests of one minute are not independent: users ask for similar things, and a busy source would drown all
    others. With a similarity of 0.05 no source counts for more than twenty.
    """
    return counts / (1.0 + np.maximum(counts - 1.0, 0.0) * similarity)


def contrast(
    seen: Observations,
    healthy: Flags,
    suffering: Sequence[Flags],
    *,
    least_support: int = LEAST_SUPPORT,
    similarity: float = SIMILARITY,
    least_g: float = LEAST_G,
) -> Contrast:
    """Compare what follows each source in the healthy time and since the alarm.

    Parameters
    ----------
    healthy
        [n] which observations are healthy.
    suffering
        Time windows of observations since the alarm; a pattern is judged by the one in which it changed most, so that
        a fault which comes late, or shows late, is not diluted.
    least_support
        Sources seen less often in the healthy time are not judged.
    """
    source = distinct(seen.source).code
    width = int(seen.target.max(initial=0)) + 1
    _, example, code = distinct(source * width + seen.target)
    of_source = source[example]
    before, before_all = _counted(code, source, healthy, of_source)
    most = np.zeros(int(of_source.max(initial=0)) + 1, dtype=np.int64)
    order = np.argsort(before, kind="stable")
    most[of_source[order]] = order
    shrink = effective(before_all, similarity) / np.maximum(before_all, 1.0)
    best = np.zeros(len(example))
    surprise = np.zeros(len(example))
    counts = np.zeros((len(example), 4))
    for part in suffering:
        now, now_all = _counted(code, source, part, of_source)
        shrink_now = effective(now_all, similarity) / np.maximum(now_all, 1.0)
        cells = (before * shrink, before_all * shrink, now * shrink_now, now_all * shrink_now)
        g = np.where((before_all >= least_support) & (now_all > 0), g_statistic(*cells), 0.0)
        rise = np.log((cells[2] + 0.5) / (cells[3] + 1.0)) - np.log((cells[0] + 0.5) / (cells[1] + 1.0))
        better = (g > best) & (rise > 0)
        best = np.where(better, g, best)
        surprise = np.where(better & (g > least_g), rise, surprise)
        counts[better] = np.stack([before, before_all, now, now_all], axis=1)[better]
    return Contrast(
        code=code,
        example=example,
        expected_row=example[most[of_source]],
        g=best,
        surprise=surprise,
        counts=counts,
    )


def _counted(code: Ints, source: Ints, chosen: Flags, of_source: Ints) -> tuple[Matrix, Matrix]:
    patterns = np.bincount(code[chosen], minlength=len(of_source)).astype(float)
    sources = np.bincount(source[chosen], minlength=int(of_source.max(initial=0)) + 1).astype(float)
    return patterns, sources[of_source]


def come_first(surprise: Matrix, trace: Ints, known_ns: Ints, share: float = 0.5) -> Flags:
    """Tell which surprises have no earlier one in their trace that is at least `share` as great.

    What happens after a surprise in the same request may be its consequence.

    >>> come_first(np.array([0.0, 2.0, 3.0, 3.0]), np.array([0, 0, 0, 1]), np.array([1, 2, 3, 9])).tolist()
    [False, True, False, True]
    """
    found = np.zeros(len(surprise), dtype=bool)
    rows = np.flatnonzero(surprise > 0)
    if not len(rows):
        return found
    rows = rows[np.lexsort([rows, known_ns[rows], trace[rows]])]
    family = np.cumsum(np.diff(trace[rows], prepend=trace[rows[0]]) != 0)
    # Traces are laid out one above the other, so that one running maximum serves them all.
    height = float(surprise.max()) + 1.0
    greatest = np.maximum.accumulate(surprise[rows] + family * height)
    before = np.concatenate([[0.0], greatest[:-1]]) - family * height
    found[rows] = before < share * surprise[rows]
    return found
