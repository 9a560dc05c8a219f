"""A pod that may send little at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import called_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Bandwidth
from faultset.collector.platforms.api.platform import Platform


@fault(
    "bandwidth-limit",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=with_stores_of_requests(called_services),
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("intermittent", "delayed"),
    intensity="2 to 12 kB/s",
    gray=True,
    needs=("bandwidth",),
)
def bandwidth_limit(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Let the pod send a few kilobytes a second, so that its answers queue."""
    pod = pod_of(platform, target)
    bytes_per_s = drawn_between(rng, 2000, 12_000, digits=0)
    over_time = course.as_parameters() if course else {}
    require(platform, NetworkImpairer).impair(pod, Bandwidth(bytes_per_s=bytes_per_s, **over_time))
    return {"pod": pod, "bytes_per_s": bytes_per_s, **over_time}
