"""A time limit of calls that is shorter than they take: the caller gives up while its callees are well."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.application.call_times import usual_call_ms
from faultset.collector.faults.deployments import runs_with_variables, set_variables
from faultset.collector.faults.intensities import percent_between
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import calling_services
from faultset.collector.platforms.api.platform import Platform

SHARES = (0.3, 0.9)
_LEAST_MS = 1.0


@fault(
    "short-timeout",
    system_level="Application",
    fault_type="Misconfiguration",
    targets=calling_services,
    check=runs_with_variables,
    intensity=f"a time limit of {percent_between(SHARES)} of the usual time",
    needs=("runtime",),
)
def short_timeout(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let a service give up calls after less time than nine of ten of them take."""
    share = round(float(rng.uniform(*SHARES)), 2)
    timeout_ms = max(_LEAST_MS, round(share * usual_call_ms(platform, target), 1))
    variables = {"RPC_TIMEOUT_MS": f"{timeout_ms:g}"}
    set_variables(platform, target, variables)
    return {"share_of_usual": share, "variables": variables}
