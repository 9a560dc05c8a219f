"""A build that never frees what it allocates, until the kernel ends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import container_status, last_end
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.builds import LEAKING


def was_killed_for_memory(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the container was ended for want of memory."""
    status = container_status(platform, target)
    ended = last_end(status)
    if status.get("image", "").endswith(parameters["image"]) and ended.get("reason") == "OOMKilled":
        return f"{target} was OOMKilled with exit code {ended['exitCode']}"
    return None


@fault(
    "memory-leak",
    system_level="Application",
    fault_type="Code Defect",
    category="symptomatic",
    targets=logic_services,
    check=was_killed_for_memory,
    intensity="9, 12 or 15 MiB/s",
    needs=("runtime",),
)
def memory_leak(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a build that leaks memory until its container reaches its limit and is killed."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(LEAKING))}"
    patch_container(platform, target, image=image)
    return {"image": image}
