"""A storage class that does not exist: the operator replaces the component's volumes, and the new claims wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.operator.custom_resource import (
    has_field,
    names_of_resource,
    resource_at_fault,
    set_field,
)
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import first_component_with_volumes
from faultset.collector.platforms.api.platform import Platform


def waits_for_volume(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a claim of that class and the pod that mounts it are Pending."""
    if not has_field(platform, target, parameters):
        return None
    wanted = parameters["storageClassName"]
    claims = [
        claim["metadata"]["name"]
        for claim in platform.list("PersistentVolumeClaim", {platform.app.label_key: target})
        if claim["spec"].get("storageClassName") == wanted and claim.get("status", {}).get("phase") == "Pending"
    ]
    pods = pods_of(platform, target)
    if not claims or not pods or pods[-1].get("status", {}).get("phase") != "Pending":
        return None
    return f"claim {claims[0]} of class {wanted} and pod {pods[-1]['metadata']['name']} are Pending"


@fault(
    "nonexistent-storage-class",
    system_level="Virtualization",
    fault_type="Dependency Problem",
    targets=first_component_with_volumes,
    check=waits_for_volume,
    root_cause=resource_at_fault,
    also_accepted=names_of_resource,
)
def nonexistent_storage_class(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ask for volumes of a storage class that the cluster has not."""
    return set_field(platform, target, "storageClassName", "this-is-a-storage-class")
