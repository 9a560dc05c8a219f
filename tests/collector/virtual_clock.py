"""A clock for runs that take no time."""

from __future__ import annotations

import time

SECOND = 1_000_000_000


class VirtualClock:
    """A clock that only waiting moves on, so that an episode takes no time; it can be set while somebody waits."""

    def __init__(self) -> None:
        self.began_ns = time.time_ns()
        self.passed_ns = 0
        self.set_after_ns, self.set_by_ns = 0, 0

    def time_ns(self) -> int:
        return self.began_ns + self.passed_ns + self.set_by_ns * (self.passed_ns > self.set_after_ns)

    def monotonic_ns(self) -> int:
        return self.passed_ns

    def sleep(self, seconds: float, /) -> None:
        self.passed_ns += round(seconds * SECOND)
