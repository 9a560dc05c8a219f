"""What an episode depends on while it waits: the machine's clock, and the processes of its platform."""

from __future__ import annotations

import time

from faultset.collector.platforms.api.capabilities import ProcessWatcher
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

LARGEST_CLOCK_STEP_S = 1.0
_PAUSE_S = 1.0


class EpisodeWatchdog:
    """Looks once a second at most whether an episode can still come to a good end.

    Parameters
    ----------
    platform
        Its processes are looked at where it is a `ProcessWatcher`.
    """

    def __init__(self, platform: object):
        self._platform = platform
        self._clock_offset_ns = clock_offset_ns()
        self._next_look = 0.0

    def check(self) -> None:
        """Raise PlatformError when a process has ended or was stopped, or the clock was set."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _PAUSE_S
        step_s = (clock_offset_ns() - self._clock_offset_ns) / SECOND_NS
        if abs(step_s) > LARGEST_CLOCK_STEP_S:
            raise PlatformError(f"the machine's clock was set by {step_s:+.1f} s during the episode, which spoils it")
        if isinstance(self._platform, ProcessWatcher):
            self._platform.check_processes()


def clock_offset_ns() -> int:
    """Return by how much the clock, which may be set, is ahead of the one that never is."""
    return time.time_ns() - time.monotonic_ns()
