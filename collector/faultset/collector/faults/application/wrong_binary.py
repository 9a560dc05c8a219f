"""Another service's program in the target's place (AIOpsLab Table 2, row 15)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services
from faultset.collector.platforms.api.platform import Platform


def runs_another_program(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the running pod was started with the wrong command."""
    for pod in pods_of(platform, target):
        command = pod["spec"]["containers"][0].get("command", [])
        if command[-1:] == [parameters["program"]] and pod["status"].get("phase") == "Running":
            return f"pod {pod['metadata']['name']} runs {' '.join(command)}"
    return None


@fault(
    "wrong-binary",
    system_level="Application",
    fault_type="Network/Storage Issue",
    paper_number=15,
    targets=logic_services,
    check=runs_another_program,
    needs=("runtime",),
)
def wrong_binary(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Start another service's program in the target's container."""
    command = container_of(platform, target)["command"]
    program = str(rng.choice([name for name in logic_services(platform.app) if name != target]))
    patch_container(platform, target, recreate=True, command=[*command[:-1], program])
    return {"program": program}
