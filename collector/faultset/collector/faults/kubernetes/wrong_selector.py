"""A Service that selects no pod: callers are refused although all pods are healthy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.platform import Platform


def selects_nothing(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether no pod carries what the Service asks for."""
    selector = platform.get("Service", target)["spec"]["selector"]
    return None if platform.list("Pod", selector) else f"Service {target} selects no pod"


@fault(
    "wrong-selector",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=networked_services,
    check=selects_nothing,
    root_cause_kind="Service",
)
def wrong_selector(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Ask for one label more in the Service's selector, which no pod carries."""
    label, value = str(rng.choice(["tier", "release", "track", "slot"])), f"v{int(rng.integers(2, 9))}"
    platform.patch("Service", target, {"spec": {"selector": {label: value}}})
    return {"label": label, "value": value}
