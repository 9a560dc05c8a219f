"""A pod that nobody can reach and that reaches nobody."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.network.evidence import is_impaired
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import running_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import NetworkImpairer, require
from faultset.collector.platforms.api.courses import Course
from faultset.collector.platforms.api.impairments import Partition
from faultset.collector.platforms.api.platform import Platform


@fault(
    "network-partition",
    system_level="Operating System",
    fault_type="Network/Storage Issue",
    category="symptomatic",
    targets=with_stores_of_requests(running_services),
    check=is_impaired,
    root_cause_kind="Pod",
    schedules=("intermittent", "delayed"),
    needs=("partition",),
)
def network_partition(
    platform: Platform, target: str, rng: np.random.Generator, course: Course | None = None
) -> dict[str, Any]:
    """Let no packet pass between the pod and anyone."""
    pod = pod_of(platform, target)
    over_time = course.as_parameters() if course else {}
    require(platform, NetworkImpairer).impair(pod, Partition(**over_time))
    return {"pod": pod, **over_time}
