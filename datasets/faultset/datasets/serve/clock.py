"""The clock of a served episode."""

from __future__ import annotations

import time
from collections.abc import Callable

from faultset.core.errors import UsageError
from faultset.datasets.format.context import EpisodeContext

_SECOND_NS = 1_000_000_000


class ServedClock:
    """Current time of a served episode; later rows are hidden.

    Parameters
    ----------
    context
        Context of the episode.
    now_s
        Current time in seconds from the start of the view; its end by default.
    live_since_ns
        Time on this machine's clock that corresponds to `now_s`; the served clock then runs, and all time stamps are
        shifted. If None, the served clock stops at `now_s`, and time stamps are served as recorded.
    wall_ns
        Clock of this machine.

    Attributes
    ----------
    offset_ns
        Nanoseconds added to all recorded times.
    """

    def __init__(
        self,
        context: EpisodeContext,
        now_s: float | None = None,
        *,
        live_since_ns: int | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        length_s = (context.view_end_ns - context.view_start_ns) / _SECOND_NS
        if now_s is not None and now_s > length_s:
            raise UsageError(
                f"the current time must be at most {length_s:g} s, the length of the view of {context.episode}, got "
                f"{now_s:g}"
            )
        self._fixed_ns = context.view_start_ns + round(_SECOND_NS * (length_s if now_s is None else now_s))
        self._wall_ns = None if live_since_ns is None else wall_ns
        self.offset_ns = 0 if live_since_ns is None else live_since_ns - self._fixed_ns
        self.start_ns = context.view_start_ns + self.offset_ns

    @property
    def now_ns(self) -> int:
        """Current time in UTC nanoseconds, as clients see it."""
        return self._fixed_ns if self._wall_ns is None else self._wall_ns()
