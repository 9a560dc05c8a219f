"""A build whose pool of connections to other services runs dry."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container, runs_new_image
from faultset.collector.faults.intensities import either, percent_between
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import calling_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.builds import KEEPING


@fault(
    "connection-pool-exhausted",
    system_level="Application",
    fault_type="Code Defect",
    targets=calling_services,
    check=runs_new_image,
    intensity=f"a pool of {either(size for size, *_ in KEEPING.values())}, of which "
    f"{percent_between(share for _, share, _ in KEEPING.values())} of the calls keep a connection 2 to 5 s",
    needs=("runtime",),
)
def connection_pool_exhausted(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a build that gives some connections of its pool back too late, so that calls wait for one."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(KEEPING))}"
    patch_container(platform, target, image=image)
    return {"image": image}
