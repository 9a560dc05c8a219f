"""What a campaign costs before it has run: how long it takes and how much disk it fills, about."""

from __future__ import annotations

from collections.abc import Sequence

from faultset.collector.plans.plan import Plan
from faultset.core.printable import size_text
from faultset.core.times import duration_text

OVERHEAD_S = 10.0
"""Time of an episode beside its phases: deployment, checks, undo and recovery.

docs/scale.md, "What many episodes cost": 83 s for phases of 73 s, by `benchmarks/collection/scale_costs.py`.
"""
USED_SLOT_SHARE = 0.78
"""Share of the time in which episodes that may run at once do.

docs/scale.md: 257 episodes of 113 s, seven at once, took 89 minutes on two cores; 69 would
keep all of them busy.
"""
BYTES_PER_REQUEST = 508
"""Disk that telemetry takes for each client request; see `BYTES_PER_SECOND`."""
BYTES_PER_SECOND = 1_790
"""Disk that telemetry takes for each second of the view, whatever the load.

docs/scale.md: 343 KiB for 60 s at 8 requests a second and 4.1 MiB for 360 s at 20. Both together
give 1.1 MB for 90 s at 20, where 0.98 MB was measured.
"""


def episode_time_s(plan: Plan) -> float:
    """Return how long one run of an episode takes."""
    return plan.phases.warmup_s + plan.phases.view_s + plan.phases.cooldown_s + OVERHEAD_S


def campaign_time_s(plans: Sequence[Plan], jobs: int) -> float:
    """Return how long a campaign takes with so many episodes at a time; none of them is repeated.

    >>> campaign_time_s([], 4)
    0.0
    """
    times_s = [episode_time_s(plan) for plan in plans]
    share = USED_SLOT_SHARE if jobs > 1 else 1.0
    return max(max(times_s, default=0.0), sum(times_s) / (jobs * share))


def campaign_bytes(plans: Sequence[Plan]) -> float:
    """Return how much disk the episodes of a campaign take, with the spans and log lines of all requests."""
    return sum(plan.phases.view_s * (BYTES_PER_SECOND + BYTES_PER_REQUEST * plan.rate_rps) for plan in plans)


def describe_campaign(plans: Sequence[Plan], jobs: int) -> str:
    """Return the number of episodes of a campaign and its cost in one line."""
    faults = sum(plan.fault is not None for plan in plans)
    together = "one at a time" if jobs == 1 else f"at most {jobs} at a time"
    return (
        f"{len(plans)} episode{'s' * (len(plans) != 1)} "
        f"({faults} with a fault, {len(plans) - faults} without), {together}: "
        f"about {duration_text(campaign_time_s(plans, jobs))} and {size_text(campaign_bytes(plans))}"
    )
