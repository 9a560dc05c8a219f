"""A build that dials the wrong database port and exits (AIOpsLab Table 2, row 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import container_status, last_end
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import store_users
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.builds import MISDIALLING


def new_build_crashes(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the pod runs the new image and has crashed."""
    status = container_status(platform, target)
    ended = last_end(status)
    if status.get("image", "").endswith(parameters["image"]) and ended:
        return f"{target} runs {status['image']} and exited with code {ended['exitCode']}"
    return None


@fault(
    "buggy-image",
    system_level="Application",
    fault_type="Misconfiguration",
    paper_number=5,
    targets=store_users,
    check=new_build_crashes,
    needs=("runtime",),
)
def buggy_image(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a build whose database client dials a port where nothing listens."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(MISDIALLING))}"
    patch_container(platform, target, image=image)
    return {"image": image}
