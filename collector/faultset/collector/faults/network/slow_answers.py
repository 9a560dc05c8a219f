"""Requests from one caller that wait on their way."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.network.requests import DRAWN_REQUESTS, draw_requests
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import called_services
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Hold
from faultset.collector.platforms.api.platform import Platform


@fault(
    "slow-answers",
    system_level="Application",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=called_services,
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("gradual", "intermittent", "delayed"),
    intensity=f"{DRAWN_REQUESTS}, by 0.2 to 0.9 s, sudden, rising, or seconds on and off",
    gray=True,
    needs=("hold",),
)
def slow_answers(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Hold up a share of the requests that one caller sends to a service."""
    pod = pod_of(platform, target)
    drawn = draw_requests(platform, target, rng, course)
    latency_s = drawn_between(rng, 0.2, 0.9)
    require(platform, NetworkImpairer).impair(pod, Hold(**drawn, latency_s=latency_s))
    return {"pod": pod, **drawn, "latency_s": latency_s}
