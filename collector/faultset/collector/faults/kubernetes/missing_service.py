"""A name that no longer resolves: the Service of a healthy workload is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.objects import ObjectNotFound
from faultset.collector.platforms.api.platform import Platform


def is_gone(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether there is no such Service."""
    try:
        platform.get("Service", target)
    except ObjectNotFound:
        return f"there is no Service {target}"
    return None


@fault(
    "missing-service",
    system_level="Virtualization",
    fault_type="Operation Error",
    targets=networked_services,
    check=is_gone,
    root_cause_kind="Service",
)
def missing_service(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Delete the Service, so that its name does not resolve any more."""
    platform.delete("Service", target)
    return {"service": target}
