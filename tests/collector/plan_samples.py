"""A plan for tests: target-port on HotelReservation, on the platform `local`."""

from __future__ import annotations

from faultset.collector.plans.plan import Plan
from faultset.collector.platforms.hosts import Phases

PLAN = Plan(
    episode="abc",
    app="hotel",
    platform="local",
    fault="target-port",
    no_fault_kind=None,
    target="geo",
    seed=1,
    phases=Phases(warmup_s=10, baseline_s=100, fault_s=100, cooldown_s=5),
    profile="custom",
    rate_rps=10,
    mix="default",
    step_s=1,
)
"""Each test replaces what it is about, such as the phases."""
