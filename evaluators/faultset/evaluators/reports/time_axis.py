"""The time axis of a drawn episode, in percent of its view."""

from __future__ import annotations

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.truth import Truth


def position(time_ns: int, truth: Truth) -> float:
    """Where an instant lies; what is outside of the view lies at its border."""
    share = (time_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
    return round(100 * min(1.0, max(0.0, share)), 2)


def ticks(truth: Truth) -> tuple[tuple[float, str], ...]:
    """Five or so round seconds; counted from the onset where there is one."""
    zero = truth.onset_ns if truth.onset_ns is not None else truth.view_start_ns
    length_s = (truth.view_end_ns - truth.view_start_ns) / SECOND_NS
    step = next((s for s in (5, 10, 15, 30, 60, 120, 300, 600) if length_s / s <= 6), 1800)
    first = int(np.ceil((truth.view_start_ns - zero) / SECOND_NS / step)) * step
    marks = range(first, int((truth.view_end_ns - zero) / SECOND_NS) + 1, step)
    signed = truth.onset_ns is not None
    return tuple(
        (position(zero + mark * SECOND_NS, truth), f"{mark:+d} s" if signed and mark else f"{mark} s") for mark in marks
    )
