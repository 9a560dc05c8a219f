"""Requests from one caller that are refused on their way."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.network.requests import DRAWN_REQUESTS, draw_requests
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import called_services
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Abort
from faultset.collector.platforms.api.platform import Platform


@fault(
    "http-abort",
    system_level="Application",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=called_services,
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("gradual", "intermittent", "delayed"),
    intensity=f"{DRAWN_REQUESTS}, sudden, rising, or seconds on and off",
    gray=True,
    needs=("abort",),
)
def http_abort(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Refuse a share of the requests that one caller sends to a service."""
    pod = pod_of(platform, target)
    drawn = draw_requests(platform, target, rng, course)
    require(platform, NetworkImpairer).impair(pod, Abort(**drawn))
    return {"pod": pod, **drawn}
