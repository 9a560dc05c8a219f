"""The pod deleted without grace, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import pod_of, pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services, with_stores_of_requests
from faultset.collector.platforms.api.platform import Platform


def pod_names(platform: Platform, target: str) -> tuple[str, ...]:
    """Return the names of the target's pods."""
    return tuple(pod["metadata"]["name"] for pod in pods_of(platform, target))


def was_replaced(platform: Platform, target: str, parameters: Mapping[str, Any], before: tuple[str, ...]) -> str | None:
    """See whether a pod of before is gone and another has its place."""
    names = pod_names(platform, target)
    gone, new = [name for name in before if name not in names], [name for name in names if name not in before]
    return f"{new[-1]} has replaced {gone[-1]}" if gone and new else None


@fault(
    "pod-kill",
    system_level="Virtualization",
    fault_type="Operation Error",
    category="symptomatic",
    targets=with_stores_of_requests(logic_services),
    check=was_replaced,
    observe=pod_names,
    check_sees="events",
    root_cause_kind="Pod",
    repeat_s=4.0,
)
def pod_kill(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Delete the pod without grace; its successor too, every four seconds."""
    pod = pod_of(platform, target)
    platform.delete("Pod", pod, grace_period_s=0)
    return {"pod": pod}
