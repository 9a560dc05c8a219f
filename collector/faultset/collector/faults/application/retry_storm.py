"""Calls that are given up too early and repeated at once, so that the callee has several times the work."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.application.call_times import usual_call_ms
from faultset.collector.faults.deployments import runs_with_variables, set_variables
from faultset.collector.faults.intensities import percent_between
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import calling_services
from faultset.collector.platforms.api.platform import Platform

SHARES = (0.7, 1.3)
_LEAST_MS = 2.0


@fault(
    "retry-storm",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=calling_services,
    check=runs_with_variables,
    intensity=f"a time limit of {percent_between(SHARES)} of the usual time, 5 to 30 repetitions",
    needs=("runtime",),
)
def retry_storm(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let a service wait for answers about as long as nine of ten take, and repeat at once what does not come."""
    share, retries = round(float(rng.uniform(*SHARES)), 2), int(rng.integers(5, 31))
    timeout_ms = max(_LEAST_MS, round(share * usual_call_ms(platform, target), 1))
    variables = {"RPC_TIMEOUT_MS": f"{timeout_ms:g}", "RPC_RETRIES": str(retries)}
    set_variables(platform, target, variables)
    return {"share_of_usual": share, "variables": variables}
