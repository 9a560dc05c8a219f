"""A tag that no registry has: the new pod waits for its image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import container_status
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services, with_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


def waits_for_image(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the pod waits for an image that nobody has."""
    waiting = container_status(platform, target).get("state", {}).get("waiting") or {}
    reason = waiting.get("reason")
    return f"{target} waits: {reason}" if reason in ("ErrImagePull", "ImagePullBackOff") else None


@fault(
    "missing-image",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=with_stores_of_requests(logic_services),
    check=waits_for_image,
)
def missing_image(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Roll out a tag that does not exist; the old pod goes before the new one comes."""
    current = container_of(platform, target)["image"]
    repository = current.rpartition(":")[0] if ":" in current.rpartition("/")[2] else current
    major, minor, candidate = (int(number) for number in rng.integers((3, 0, 1), (9, 9, 5)))
    image = f"{repository}:{major}.{minor}.0-rc{candidate}"
    patch_container(platform, target, recreate=True, image=image)
    return {"image": image}
