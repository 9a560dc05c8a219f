"""More replicas than any cluster has room for (AIOpsLab Table 2, row 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.operator.custom_resource import names_of_resource, resource_at_fault, set_field
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import components_without_volumes
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.pod_state import is_unschedulable

REPLICAS = 100_000


def has_too_many_replicas(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the operator has made the StatefulSet as large, and a pod finds no room."""
    wanted = platform.get("StatefulSet", target)["spec"]["replicas"]
    waiting = [pod["metadata"]["name"] for pod in pods_of(platform, target) if is_unschedulable(pod)]
    if wanted != parameters["replicas"] or not waiting:
        return None
    return f"StatefulSet {target} wants {wanted} replicas, and no node has room for pod {waiting[-1]}"


@fault(
    "overload-replicas",
    system_level="Virtualization",
    fault_type="Operation Error",
    paper_number=11,
    targets=components_without_volumes,
    check=has_too_many_replicas,
    root_cause=resource_at_fault,
    also_accepted=names_of_resource,
    dormant_reason="the pods that find no room only wait, and those of before run on",
)
def overload_replicas(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ask the operator for a hundred thousand replicas of a component."""
    return set_field(platform, target, "replicas", REPLICAS)
