"""A claim made anew while its volume still belongs to the old one (AIOpsLab Table 2, row 14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.stores import flush_caches, restart_consumers
from faultset.collector.faults.targets import databases_with_claim
from faultset.collector.platforms.api.platform import Platform


def claim_is_pending(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the claim waits for a volume and the store's pod for the claim."""
    claim = platform.get("PersistentVolumeClaim", parameters["claim"])
    pods = pods_of(platform, target)
    if claim.get("status", {}).get("phase") == "Pending" and pods and pods[-1]["status"].get("phase") == "Pending":
        return f"claim {parameters['claim']} and pod {pods[-1]['metadata']['name']} are Pending"
    return None


@fault(
    "redeploy-without-pv",
    system_level="Virtualization",
    fault_type="Operation Error",
    paper_number=14,
    targets=databases_with_claim,
    check=claim_is_pending,
    root_cause_kind="PersistentVolumeClaim",
    needs=("exec", "runtime"),
)
def redeploy_without_pv(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Deploy the store again with a new claim; the released volume still names the old one and does not bind."""
    name = platform.app.services[target].claim
    assert name is not None
    claim = platform.get("PersistentVolumeClaim", name)
    spec = {key: value for key, value in claim["spec"].items() if key != "volumeName"}
    platform.patch("Deployment", target, {"spec": {"replicas": 0}})
    platform.wait(lambda: not pods_of(platform, target), timeout_s=40, what=f"the end of {target}'s pod")
    platform.delete("PersistentVolumeClaim", name)
    platform.wait(
        lambda: all(c["metadata"]["name"] != name for c in platform.list("PersistentVolumeClaim")),
        timeout_s=30,
        what=f"the deletion of claim {name}",
    )
    metadata = {"name": name, "labels": claim["metadata"].get("labels", {})}
    platform.apply([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}])
    platform.patch("Deployment", target, {"spec": {"replicas": 1}})
    caches = flush_caches(platform, target)
    return {"claim": name, "flushed": caches, "restarted": restart_consumers(platform, target)}
