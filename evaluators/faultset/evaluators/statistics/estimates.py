"""A number with its interval, what it was computed from, and why it is missing where it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

TOO_FEW = "too few episodes"
"""How the reason of a value begins that is missing because there was too little data."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval.

    `k` of `n` is given where the value is a count over episodes; `reason` says why a value or an interval
    is missing.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    k: float | None = None
    method: str = ""
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a value at all."""
        return not math.isnan(self.value)

    @property
    def interval_known(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def with_interval(self, low: float, high: float, *, method: str) -> Estimate:
        """Return the same value with an interval and how it was made."""
        return replace(self, low=float(low), high=float(high), method=method)

    def without_interval(self, reason: str) -> Estimate:
        """Return the same value with the reason why it has no interval."""
        return replace(self, reason=reason)


def unknown(reason: str, n: int = 0) -> Estimate:
    """An estimate that cannot be given, and why."""
    return Estimate(value=math.nan, n=n, reason=reason)
