"""Lengths of an episode's phases, and the profiles that name them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Lengths of an episode's phases in seconds.

    The view is baseline plus fault; the reference window is its healthy begin.
    """

    warmup_s: float
    baseline_s: float
    fault_s: float
    cooldown_s: float

    @property
    def view_s(self) -> float:
        """Length of the view, which is the same in every episode of a campaign."""
        return self.baseline_s + self.fault_s

    @property
    def reference_s(self) -> float:
        """Length of the window at the begin of the view in which no fault can be."""
        return 0.8 * self.baseline_s


QUICK = Phases(warmup_s=8.0, baseline_s=45.0, fault_s=45.0, cooldown_s=5.0)
STANDARD = Phases(warmup_s=30.0, baseline_s=180.0, fault_s=180.0, cooldown_s=30.0)
