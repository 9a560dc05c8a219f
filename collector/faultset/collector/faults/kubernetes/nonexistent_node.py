"""A pod that no node can take (AIOpsLab Table 2, row 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import RECREATE
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services, with_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


def is_unscheduled(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether all pods of the target wait for a node."""
    pods = pods_of(platform, target)
    if pods and all(pod["status"].get("phase") == "Pending" and not pod["spec"].get("nodeName") for pod in pods):
        return f"pod {pods[-1]['metadata']['name']} is Pending without a node"
    return None


@fault(
    "nonexistent-node",
    system_level="Virtualization",
    fault_type="Dependency Problem",
    paper_number=7,
    targets=with_stores_of_requests(logic_services),
    check=is_unscheduled,
)
def nonexistent_node(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Select a node that does not exist; the old pod goes before the new one would come."""
    node = f"node-{int(rng.integers(20, 90))}"
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
    platform.patch("Deployment", target, {"spec": {"strategy": RECREATE, "template": {"spec": selector}}})
    return {"node": node}
