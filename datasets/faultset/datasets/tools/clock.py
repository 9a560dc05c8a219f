"""The clock of an episode that is looked at afterwards: a moment in the view that counts as now."""

from __future__ import annotations

from datetime import UTC, datetime

from faultset.core.errors import UsageError
from faultset.datasets.format.context import EpisodeContext

DELAY_S = 60.0
"""Seconds from an alarm to the moment at which an agent is called."""
_SECOND_NS = 1_000_000_000


class ViewClock:
    """What counts as now. Rows from the start of the view up to now can be seen, later ones cannot.

    Parameters
    ----------
    context
        Of the episode.
    now_ns
        UTC nanoseconds, moved into the view; its end by default.
    """

    def __init__(self, context: EpisodeContext, now_ns: int | None = None) -> None:
        self.start_ns, self.end_ns = context.view_start_ns, context.view_end_ns
        self.now_ns = self.end_ns if now_ns is None else min(max(now_ns, self.start_ns + 1), self.end_ns)

    @classmethod
    def after(cls, context: EpisodeContext, alarm_ns: int, delay_s: float = DELAY_S) -> ViewClock:
        """Return the clock of someone who is called some seconds after an alarm."""
        return cls(context, alarm_ns + round(delay_s * _SECOND_NS))

    @property
    def left_s(self) -> float:
        """Seconds until the view ends."""
        return (self.end_ns - self.now_ns) / _SECOND_NS

    def wait(self, seconds: float) -> float:
        """Move on, up to the end of the view, and return by how many seconds."""
        if not seconds >= 0:
            raise UsageError(f"waiting takes a number of seconds from 0, not {seconds}")
        before = self.now_ns
        self.now_ns = min(self.end_ns, self.now_ns + round(min(seconds, 1e9) * _SECOND_NS))
        return (self.now_ns - before) / _SECOND_NS

    def since_ns(self, seconds: float | None) -> int:
        """Return the instant so many seconds before now, or the start of the view."""
        if seconds is None:
            return self.start_ns
        return max(self.start_ns, self.now_ns - round(min(max(seconds, 0.0), 1e9) * _SECOND_NS))

    def __str__(self) -> str:
        return stamp(self.now_ns, "seconds")


def stamp(time_ns: int, precision: str = "milliseconds") -> str:
    """Return an instant as ISO 8601 in UTC.

    >>> stamp(1_795_313_371_250_000_000)
    '2026-11-22T02:09:31.250Z'
    """
    seconds, rest = divmod(int(time_ns), _SECOND_NS)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return time.isoformat(timespec=precision).replace("+00:00", "Z")
