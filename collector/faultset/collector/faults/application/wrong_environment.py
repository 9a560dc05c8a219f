"""An environment variable that makes a service listen where nobody looks for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of, patch_container
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform

_VARIABLE = "POD_IP"


def has_variable(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a pod that runs has the wrong value."""
    for pod in pods_of(platform, target):
        variables = pod["spec"]["containers"][0].get("env", [])
        runs = any("running" in one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", []))
        if runs and any(variable.get("value") == parameters["value"] for variable in variables):
            return f"{pod['metadata']['name']} has {_VARIABLE}={parameters['value']}"
    return None


@fault(
    "wrong-environment",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=networked_services,
    check=has_variable,
    needs=("runtime",),
)
def wrong_environment(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Set the address on which the service listens to one of the loopback interface, which nobody else reaches."""
    value = ".".join(["127", *(str(number) for number in rng.integers(2, 250, 3))])
    variables = copy.deepcopy(container_of(platform, target).get("env", []))
    kept = [variable for variable in variables if variable["name"] != _VARIABLE]
    patch_container(platform, target, env=[*kept, {"name": _VARIABLE, "value": value}])
    return {"variable": _VARIABLE, "value": value}
