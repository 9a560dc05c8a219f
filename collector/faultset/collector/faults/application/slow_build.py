"""A build whose requests wait for something that they did not wait for before."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container, runs_new_image
from faultset.collector.faults.intensities import either
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.builds import SLOWED


@fault(
    "slow-build",
    system_level="Application",
    fault_type="Code Defect",
    targets=networked_services,
    check=runs_new_image,
    intensity=f"{either(f'{wait_s:g} s at {100 * share:g} %' for share, wait_s in SLOWED.values())} of the requests",
    needs=("runtime",),
)
def slow_build(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a build that waits at a share of its requests."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(SLOWED))}"
    patch_container(platform, target, image=image)
    return {"image": image}
