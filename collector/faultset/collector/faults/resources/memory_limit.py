"""A memory limit below what the service needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import patch_container
from faultset.collector.faults.intensities import percent_between
from faultset.collector.faults.pods import container_status, last_end, pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.resources.cpu_use import counter_now
from faultset.collector.faults.targets import logic_services
from faultset.collector.platforms.api.platform import Platform

SHARES = (0.33, 0.67)
_LEAST_KIB = 4096
_USED = "container_memory_working_set_bytes"


def memory_ends(platform: Platform, target: str) -> tuple[str, int]:
    """Return the newest container's pod and how often it was restarted."""
    return pod_of(platform, target), container_status(platform, target).get("restartCount", 0)


def was_killed(platform: Platform, target: str, parameters: Mapping[str, Any], before: tuple[str, int]) -> str | None:
    """See whether a container was ended for want of memory since the injection."""
    ended = last_end(container_status(platform, target))
    if ended.get("reason") == "OOMKilled" and memory_ends(platform, target) != before:
        return f"{target} was OOMKilled at a limit of {parameters['limit']}"
    return None


@fault(
    "memory-limit",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=logic_services,
    check=was_killed,
    observe=memory_ends,
    intensity=f"a limit of {percent_between(SHARES)} of what is used",
)
def memory_limit(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a memory limit below what is used; no pod starts, and the old one goes first."""
    used_kib = counter_now(platform, pod_of(platform, target), _USED) / 1024
    share = round(float(rng.uniform(*SHARES)), 2)
    limit = f"{max(_LEAST_KIB, round(share * used_kib))}Ki"
    resources = {"requests": {"cpu": "5m", "memory": limit}, "limits": {"cpu": "1", "memory": limit}}
    patch_container(platform, target, recreate=True, resources=resources)
    return {"limit": limit, "share": share}
