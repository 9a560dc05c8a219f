"""Lengths of an episode's phases, and the profiles that name them."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SETTLING_S = 5.0
READING_S = 10.0
"""About what reading the telemetry of an episode takes on a cluster."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Lengths of an episode's phases in seconds.

    The view is baseline plus fault; the reference window is the first part of the view, in which no fault can be.
    """

    warmup_s: float
    """Load before the view begins."""
    baseline_s: float
    """Healthy part of the view, on average: the onset is drawn around its end."""
    fault_s: float
    """Faulty part of the view, on average."""
    cooldown_s: float
    """Time after the recovery for telemetry that is late; what is there already is read in its last seconds."""

    @property
    def settling_s(self) -> float:
        """Part of the cool-down, under load, before telemetry is read."""
        return max(min(self.cooldown_s, LEAST_SETTLING_S), self.cooldown_s - READING_S)

    @property
    def view_s(self) -> float:
        """Length of the view, which is the same in every episode of a campaign."""
        return self.baseline_s + self.fault_s

    @property
    def reference_s(self) -> float:
        """Length of the window at the beginning of the view in which no fault can be."""
        return 0.8 * self.baseline_s


QUICK = Phases(warmup_s=8.0, baseline_s=45.0, fault_s=45.0, cooldown_s=5.0)
STANDARD = Phases(warmup_s=30.0, baseline_s=180.0, fault_s=180.0, cooldown_s=5.0)
LONG = Phases(warmup_s=60.0, baseline_s=1500.0, fault_s=1800.0, cooldown_s=5.0)
"""An hour, for faults that grow over minutes."""
