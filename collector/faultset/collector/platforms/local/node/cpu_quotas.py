"""CPU quotas in periods of 100 ms, as the kernel's CFS bandwidth control keeps them, without privileges.

A container whose processes have used up their quota is suspended with SIGSTOP until the period ends. What it used
beyond its quota before it was caught is taken from its next periods, so that the mean never exceeds the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

PERIOD_S = 0.1
_SHORTEST_CHECK_S = 0.002


@dataclass
class Quota:
    """The quota of one container; decides, and leaves stopping and continuing to its caller.

    Parameters
    ----------
    limit
        Cores that the container may use; None for no limit.
    cores
        Cores of the machine: a container cannot use more, and is not watched when its limit is not lower.
    """

    limit: float | None
    cores: int
    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0
    stopped: bool = False
    hot: bool = False
    _used_at_start: float = 0.0
    _balance: float = math.inf
    _stopped_at: float = 0.0

    def begin(self, now: float, used_s: float) -> bool | None:
        """Close a period and begin the next; return True to stop the container, False to continue it, or None.

        Parameters
        ----------
        now
            Monotonic time in seconds.
        used_s
            CPU seconds that the container has used since its start.
        """
        spent = used_s - self._used_at_start
        self._used_at_start = used_s
        if self.limit is None:
            return self._resume(now)
        self.periods += spent > 0 or self.stopped
        if self.limit >= self.cores:
            return self._resume(now)
        quota = self.limit * PERIOD_S
        self._balance = min(0.0, self._balance - spent) + quota
        self.hot = spent > 0.4 * quota or self.stopped or self._balance < quota
        return self._stop(now) if self._balance <= 0 else self._resume(now)

    def check(self, now: float, used_s: float) -> bool | None:
        """Look at the container within a period; return True to stop it, or None."""
        if not self.hot or self.stopped or self.limit is None or self.limit >= self.cores:
            return None
        return self._stop(now) if used_s - self._used_at_start >= self._balance else None

    def next_check_s(self, used_s: float) -> float | None:
        """Return in how many seconds the quota can be used up at the earliest; None when it need not be watched."""
        if not self.hot or self.stopped or self.limit is None or self.limit >= self.cores:
            return None
        left = self._balance - (used_s - self._used_at_start)
        return max(_SHORTEST_CHECK_S, left / self.cores)

    def throttled_so_far(self, now: float) -> float:
        """Return how many seconds the container has been stopped."""
        return self.throttled_s + (now - self._stopped_at if self.stopped else 0.0)

    def _stop(self, now: float) -> bool | None:
        self.throttled_periods += 1
        if self.stopped:
            return None
        self.stopped, self._stopped_at = True, now
        return True

    def _resume(self, now: float) -> bool | None:
        if not self.stopped:
            return None
        self.throttled_s += now - self._stopped_at
        self.stopped = False
        return False
