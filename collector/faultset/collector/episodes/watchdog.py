"""What an episode depends on while it waits: the machine's clock, and the processes of its platform."""

from __future__ import annotations

from faultset.collector.episodes.clock import SYSTEM_CLOCK, EpisodeClock
from faultset.collector.platforms.base import EpisodePlatform
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

LARGEST_CLOCK_STEP_S = 1.0
_PAUSE_S = 1.0


class EpisodeWatchdog:
    """Looks whether an episode can still come to a good end, at processes once a second at most.

    Parameters
    ----------
    platform
        Whose processes are looked at.
    clock
        Ends the episode when it is set.
    """

    def __init__(self, platform: EpisodePlatform, clock: EpisodeClock = SYSTEM_CLOCK):
        self._platform, self._clock = platform, clock
        self._clock_offset_ns = self._offset_ns()
        self._next_look_ns = 0

    def check(self) -> None:
        """Raise PlatformError when the clock was set, or a process has ended or was stopped."""
        step_s = (self._offset_ns() - self._clock_offset_ns) / SECOND_NS
        if abs(step_s) > LARGEST_CLOCK_STEP_S:
            raise PlatformError(f"the machine's clock was set by {step_s:+.1f} s during the episode, which spoils it")
        if self._clock.monotonic_ns() < self._next_look_ns:
            return
        self._next_look_ns = self._clock.monotonic_ns() + round(_PAUSE_S * SECOND_NS)
        self._platform.check_processes()

    def _offset_ns(self) -> int:
        # by how much the clock that may be set is ahead of the one that never is
        return self._clock.time_ns() - self._clock.monotonic_ns()
