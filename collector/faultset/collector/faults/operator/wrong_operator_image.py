"""An operator whose image does not exist: nobody looks after the custom resource, and everything else goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.kubernetes.missing_image import waits_for_image
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import operators
from faultset.collector.platforms.api.platform import Platform


@fault(
    "wrong-operator-image",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=operators,
    check=waits_for_image,
    dormant_reason="nobody looks after the custom resource, and what the operator made before runs on",
)
def wrong_operator_image(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Misspell the image of the operator in its Deployment; the old pod goes before the new one comes."""
    repository, colon, tag = container_of(platform, target)["image"].rpartition(":")
    image = f"{repository}{repository[-1]}{colon}{tag}"
    patch_container(platform, target, recreate=True, image=image)
    return {"image": image}
