"""Packets of a pod that are lost (AIOpsLab Table 2, row 8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.intensities import drawn_between, percent_between
from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import running_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Loss
from faultset.collector.platforms.api.platform import Platform

SHARES = (0.08, 0.4)


@fault(
    "network-loss",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    paper_number=8,
    category="symptomatic",
    targets=with_stores_of_requests(running_services),
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("gradual", "intermittent", "delayed"),
    intensity=f"{percent_between(SHARES)} of the packets",
    gray=True,
    needs=("loss",),
)
def network_loss(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Lose a share of the packets that the pod sends."""
    pod, probability = pod_of(platform, target), drawn_between(rng, *SHARES)
    over_time = course.as_parameters() if course else {}
    require(platform, NetworkImpairer).impair(pod, Loss(probability=probability, **over_time))
    return {"pod": pod, "probability": probability, **over_time}
