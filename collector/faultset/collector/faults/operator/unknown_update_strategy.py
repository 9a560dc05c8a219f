"""An update strategy that nobody knows. The operator takes it for its usual one, so nothing shows but the resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.operator.custom_resource import (
    has_field,
    names_of_resource,
    resource_at_fault,
    set_field,
)
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import components
from faultset.collector.platforms.api.platform import Platform


def has_unknown_strategy(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the custom resource has the strategy: there is nothing else to see."""
    if not has_field(platform, target, parameters):
        return None
    return f"the custom resource asks for update strategy {parameters['statefulSetUpdateStrategy']} of {target}"


@fault(
    "unknown-update-strategy",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=components,
    check=has_unknown_strategy,
    root_cause=resource_at_fault,
    also_accepted=names_of_resource,
    dormant_reason="the operator takes an unknown strategy for its usual one",
)
def unknown_update_strategy(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ask for an update strategy that does not exist, which the operator ignores."""
    return set_field(platform, target, "statefulSetUpdateStrategy", "SomeStrategyForUpdate")
