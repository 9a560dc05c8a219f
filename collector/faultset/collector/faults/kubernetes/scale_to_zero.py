"""No replica left (AIOpsLab Table 2, row 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services, with_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


def has_no_pods(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the Deployment wants none and has none."""
    wanted = platform.get("Deployment", target)["spec"]["replicas"]
    return f"Deployment {target} has 0 replicas and no pod" if wanted == 0 and not pods_of(platform, target) else None


@fault(
    "scale-to-zero",
    system_level="Virtualization",
    fault_type="Operation Error",
    paper_number=6,
    targets=with_stores_of_requests(logic_services),
    check=has_no_pods,
)
def scale_to_zero(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Scale the Deployment to no replicas."""
    platform.patch("Deployment", target, {"spec": {"replicas": 0}})
    return {"replicas": 0}
