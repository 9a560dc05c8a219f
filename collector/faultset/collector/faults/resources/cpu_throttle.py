"""A CPU limit below what the service needs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.intensities import percent_between
from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.resources.cpu_use import counter_now, cpu_cores
from faultset.collector.faults.targets import logic_services
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.observation.quantities import quantity

SHARES = (0.35, 0.65)
LEAST_MILLICORES = 10


def throttled_periods(platform: Platform, target: str) -> float:
    """Return in how many periods the container has been throttled so far."""
    return counter_now(platform, pod_of(platform, target), "container_cpu_cfs_throttled_periods_total")


def is_throttled(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the container has been throttled in at least five periods since the injection."""
    periods = throttled_periods(platform, target) - before
    return f"{parameters['pod']} throttled in {periods:.0f} periods" if periods >= 5 else None


@fault(
    "cpu-throttle",
    system_level="Operating System",
    fault_type="Misconfiguration",
    category="symptomatic",
    targets=logic_services,
    check=is_throttled,
    observe=throttled_periods,
    check_sees="events",
    root_cause_kind="Pod",
    intensity=f"a limit of {percent_between(SHARES)} of what is used",
    gray=True,
    needs=("resize",),
)
def cpu_throttle(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Lower the container's CPU limit in place below what it uses."""
    pod = pod_of(platform, target)
    cores = float(rng.uniform(*SHARES)) * cpu_cores(platform, pod)
    containers = copy.deepcopy(platform.get("Pod", pod)["spec"]["containers"])
    resources = containers[0].setdefault("resources", {})
    requested = quantity((resources.get("requests") or {}).get("cpu", 0))
    # a limit may not be below the request, nor below the least quota of container runtimes
    limit = f"{max(LEAST_MILLICORES, round(1000 * requested), round(1000 * cores))}m"
    resources.setdefault("limits", {})["cpu"] = limit
    platform.patch("Pod", pod, {"spec": {"containers": containers}})
    return {"pod": pod, "limit": limit}
