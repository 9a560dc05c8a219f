"""Packets of a pod that arrive late."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import running_services
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Delay
from faultset.collector.platforms.api.platform import Platform


@fault(
    "network-delay",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=running_services,
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("gradual", "intermittent", "delayed"),
    intensity="60 to 500 ms",
    gray=True,
    needs=("delay",),
)
def network_delay(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Hold back all packets that the pod sends."""
    pod, latency_s = pod_of(platform, target), drawn_between(rng, 0.06, 0.5)
    over_time = course.as_parameters() if course else {}
    require(platform, NetworkImpairer).impair(
        pod, Delay(latency_s=latency_s, jitter_s=round(latency_s / 10, 3), **over_time)
    )
    return {"pod": pod, "latency_s": latency_s, **over_time}
