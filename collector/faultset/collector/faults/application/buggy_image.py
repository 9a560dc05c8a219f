"""A build that dials the wrong database port and exits (AIOpsLab Table 2, row 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import container_status, last_end, last_error_line, pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import store_users
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.builds import MISDIALLING


def new_build_fails(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the pod runs the new image and has crashed, or logs errors."""
    status = container_status(platform, target)
    if not status.get("image", "").endswith(parameters["image"]):
        return None
    if ended := last_end(status):
        return f"{target} runs {status['image']} and exited with code {ended['exitCode']}"
    line = last_error_line(platform, pod_of(platform, target))
    return f"{target} runs {status['image']} and logs: {line}" if line is not None else None


@fault(
    "buggy-image",
    system_level="Application",
    fault_type="Misconfiguration",
    paper_number=5,
    targets=store_users,
    check=new_build_fails,
    needs=("runtime",),
)
def buggy_image(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a build whose database client dials a port where nothing listens."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(MISDIALLING))}"
    patch_container(platform, target, image=image)
    return {"image": image}
