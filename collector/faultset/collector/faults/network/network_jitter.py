"""Packets of a pod that take now a short, now a long time."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import running_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Delay
from faultset.collector.platforms.api.platform import Platform


@fault(
    "network-jitter",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=with_stores_of_requests(running_services),
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("gradual", "intermittent", "delayed"),
    intensity="0 to twice 25 to 150 ms",
    gray=True,
    needs=("delay",),
)
def network_jitter(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Hold back each packet that the pod sends for another time, from none to twice the mean."""
    pod = pod_of(platform, target)
    latency_s = drawn_between(rng, 0.025, 0.15)
    over_time = course.as_parameters() if course else {}
    require(platform, NetworkImpairer).impair(pod, Delay(latency_s=latency_s, jitter_s=latency_s, **over_time))
    return {"pod": pod, "latency_s": latency_s, **over_time}
