"""A toleration that the API server refuses, so that the operator cannot update the component any more."""

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
    "invalid-toleration",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=components,
    check=is_refused,
    observe=now_ns,
    root_cause=resource_at_fault,
    also_accepted=names_of_resource,
    dormant_reason="the API server refuses what the operator makes of it, and the pods of before run on",
)
def invalid_toleration(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Give the component a toleration of an effect that does not exist."""
    toleration = {"key": "test-keys", "operator": "Equal", "value": "test-value"}
    toleration |= {"effect": "TAKE_SOME_EFFECT", "tolerationSeconds": 0}
    return set_field(platform, target, "tolerations", [toleration])
