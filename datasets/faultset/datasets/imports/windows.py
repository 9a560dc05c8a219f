"""The healthy reference window of foreign cases."""

from __future__ import annotations

from faultset.core.errors import DataError

EMPTY_VIEW = "no telemetry is within the view"
"""Reason that a case cannot become an episode."""
REFERENCE_SHARE = 0.4
"""Share of a view used as the reference: 0.8 of the first half, as in collected episodes."""
BEFORE_ONSET_SHARE = 0.8
"""Share of the time before an early onset that is used as the reference."""


def reference_end(view_start_ns: int, view_end_ns: int, onset_ns: int | None, *, origin: str) -> int:
    """Return the end of the healthy reference: before the onset and, if possible, independent of it.

    The reference is the first 40 % of the view. If the fault begins earlier, it is the first 80 % of the time before
    the fault; its length then reveals the onset.

    Parameters
    ----------
    origin
        Name of the case in errors.

    Examples
    --------
    >>> reference_end(0, 1440, 720, origin="a case"), reference_end(0, 1000, 300, origin="a case")
    (576, 240)
    """
    if view_end_ns <= view_start_ns:
        raise DataError(f"{origin} must cover some time, but ends when it begins; leave it out")
    end = view_start_ns + round(REFERENCE_SHARE * (view_end_ns - view_start_ns))
    if onset_ns is None or end <= onset_ns:
        return max(end, view_start_ns + 1)
    end = view_start_ns + round(BEFORE_ONSET_SHARE * (onset_ns - view_start_ns))
    if end <= view_start_ns:
        raise DataError(f"{origin} has no healthy time: its fault begins at or before its first sample; leave it out")
    return end
