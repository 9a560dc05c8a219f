"""A host name that nobody has, in the settings of one caller."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.deployments import runs_with_variables, set_variables
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import calling_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.runtime.environment import host_variable


@fault(
    "wrong-host",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=calling_services,
    check=runs_with_variables,
    intensity="one of the services that it calls",
    needs=("runtime",),
)
def wrong_host(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Set the host under which a service looks for one of those it calls to a name that DNS does not know."""
    callee = str(rng.choice(platform.app.services[target].calls))
    host = f"{callee}-{rng.choice(['v2', 'old', 'internal', 'svc', 'prod'])}{int(rng.integers(1, 100))}"
    variables = {host_variable(callee): host}
    set_variables(platform, target, variables)
    return {"callee": callee, "variables": variables}
