"""Stretches of time in which no series of metrics has a sample: the collector paused, not a service."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS

_LONGEST_PAUSE = 3
"""Steps without a sample that are no gap: a scrape may be late or missed."""


@dataclass(frozen=True, kw_only=True)
class CommonGap:
    """The longest stretch of a view without a sample of any series."""

    offset_s: float
    """From the start of the view to its begin."""
    length_s: float
    """Its length."""

    def __str__(self) -> str:
        return f"{self.length_s:.0f} s, {self.offset_s:.0f} s after the start of the view"


def find_common_gap(
    times_ns: npt.NDArray[np.int64], view: tuple[int, int], interval_s: float | None
) -> CommonGap | None:
    """Return the longest gap that all series have in common; None where samples come regularly, or there are none.

    Parameters
    ----------
    times_ns
        Times of the samples of all series, in any order.
    view
        Start and end of the view.
    interval_s
        Sampling interval; None for the median time between two samples.

    Examples
    --------
    >>> times = np.array([second for second in range(60) if not 20 < second < 32]) * SECOND_NS
    >>> print(find_common_gap(times, (0, 60 * SECOND_NS), 1.0))
    12 s, 20 s after the start of the view
    """
    instants = np.unique(times_ns)
    if len(instants) < 2:
        return None
    step_ns = interval_s * SECOND_NS if interval_s else float(np.median(np.diff(instants)))
    edges = np.concatenate([[view[0]], instants, [view[1]]])
    lengths = np.diff(edges)
    longest = int(np.argmax(lengths))
    if lengths[longest] <= _LONGEST_PAUSE * step_ns:
        return None
    return CommonGap(offset_s=float(edges[longest] - view[0]) / SECOND_NS, length_s=float(lengths[longest]) / SECOND_NS)
