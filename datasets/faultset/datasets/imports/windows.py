"""Windows of foreign cases, which were not cut with a view in mind."""

from __future__ import annotations

from faultset.core.errors import DataError

EMPTY_VIEW = "none of the telemetry lies in the view"
"""Why a case cannot become an episode."""
REFERENCE_SHARE = 0.4
"""Part of a view that is taken as healthy: 0.8 of the first half, as in our own episodes."""
BEFORE_ONSET_SHARE = 0.8
"""Part of the time before the onset that is taken where the onset comes early."""


def reference_end(view_start_ns: int, view_end_ns: int, onset_ns: int | None, *, origin: str) -> int:
    """Return where the part known to be healthy ends: before the onset, and where possible independent of it.

    The first 40 % of the view are taken, whatever the onset. Only when the fault begins earlier than that, the
    reference is 80 % of the time before it, and its length tells the onset.

    Parameters
    ----------
    origin
        Names the case in the error that is raised when there is no healthy time at all.

    Examples
    --------
    >>> reference_end(0, 1440, 720, origin="a case"), reference_end(0, 1000, 300, origin="a case")
    (576, 240)
    """
    if view_end_ns <= view_start_ns:
        raise DataError(f"{origin} covers no time; leave it out")
    end = view_start_ns + round(REFERENCE_SHARE * (view_end_ns - view_start_ns))
    if onset_ns is None or end <= onset_ns:
        return max(end, view_start_ns + 1)
    end = view_start_ns + round(BEFORE_ONSET_SHARE * (onset_ns - view_start_ns))
    if end <= view_start_ns:
        raise DataError(f"{origin} has no healthy time: its fault begins at or before its first sample; leave it out")
    return end
