"""A second program in the container that takes all CPU it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.resources.cpu_use import cpu_cores
from faultset.collector.faults.targets import logic_services
from faultset.collector.platforms.api.capabilities import CommandExecutor, NetworkImpairer, require, stresses_pods
from faultset.collector.platforms.api.impairments import CpuStress
from faultset.collector.platforms.api.platform import Platform


def cores_in_use(platform: Platform, target: str) -> float:
    """Return how many cores the container uses at present."""
    return cpu_cores(platform, pod_of(platform, target), window_s=3.0)


def uses_much_cpu(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the container uses most of its CPU limit, and more than before the injection."""
    cores = cores_in_use(platform, target)
    if cores > 0.8 * parameters["limit_cores"] and cores > 1.1 * before:
        return f"{parameters['pod']} uses {cores:.2f} cores, {before:.2f} before"
    return None


@fault(
    "cpu-hog",
    system_level="Operating System",
    fault_type="Code Defect",
    category="symptomatic",
    targets=logic_services,
    check=uses_much_cpu,
    observe=cores_in_use,
    root_cause_kind="Pod",
    intensity="2 to 4 busy loops",
    gray=True,
    needs=("exec", "runtime"),
)
def cpu_hog(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Run busy loops inside the container; with it they share the container's CPU limit."""
    pod, workers, name = pod_of(platform, target), int(rng.integers(2, 5)), f"/tmp/{rng.bytes(4).hex()}"
    if stresses_pods(platform):
        require(platform, NetworkImpairer).impair(pod, CpuStress(workers=workers))
    else:
        require(platform, CommandExecutor).exec(
            pod,
            ["faultset-work", "cpu", "--workers", str(workers), "--seconds", "1800", "--pid-file", name],
            undo=["faultset-work", "stop", "--pid-file", name],
        )
    return {"pod": pod, "workers": workers, "limit_cores": platform.app.services[target].cpu_limit}
