"""An environment variable by which a service wants to listen on an address that it does not have."""

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
    """Set the address on which the service listens to one that no machine has, so that it cannot start."""
    # of a block that is kept for documentation (RFC 5737)
    variables = {"POD_IP": f"192.0.2.{int(rng.integers(2, 250))}"}
    set_variables(platform, target, variables)
    return {"variables": variables}
