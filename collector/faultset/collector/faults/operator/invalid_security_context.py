"""A user that cannot exist, so that the API server refuses what the operator makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.collector.faults.operator.custom_resource import (
    is_refused,
    names_of_resource,
    now_ns,
    resource_at_fault,
    set_field,
)
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import components
from faultset.collector.platforms.api.platform import Platform


@fault(
    "invalid-security-context",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=components,
    check=is_refused,
    observe=now_ns,
    root_cause=resource_at_fault,
    also_accepted=names_of_resource,
    dormant_reason="the API server refuses what the operator makes of it, and the pods of before run on",
)
def invalid_security_context(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Let the component's pods run as user -1."""
    return set_field(platform, target, "podSecurityContext", {"runAsUser": -1})
