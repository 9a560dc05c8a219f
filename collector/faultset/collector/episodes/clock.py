"""The clock of an episode: the machine's own, or another one that takes its place."""

from __future__ import annotations

import time
from typing import Protocol


class EpisodeClock(Protocol):
    """What an episode asks of a clock; the module `time` is one."""

    def time_ns(self) -> int:
        """Return UTC nanoseconds since 1970."""
        ...

    def monotonic_ns(self) -> int:
        """Return nanoseconds of a clock that is never set."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Return after so many seconds."""
        ...


SYSTEM_CLOCK: EpisodeClock = time
"""The clock of this machine."""
