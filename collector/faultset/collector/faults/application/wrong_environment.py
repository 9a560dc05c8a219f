"""An environment variable that makes a service listen where nobody looks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import runs_with_variables, set_variables
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform


@fault(
    "wrong-environment",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=networked_services,
    check=runs_with_variables,
    needs=("runtime",),
)
def wrong_environment(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Set the address on which the service listens to one of the loopback interface, which nobody else reaches."""
    variables = {"POD_IP": ".".join(["127", *(str(number) for number in rng.integers(2, 250, 3))])}
    set_variables(platform, target, variables)
    return {"variables": variables}
