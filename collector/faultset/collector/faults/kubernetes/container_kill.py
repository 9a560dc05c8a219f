"""The main process killed again and again (AIOpsLab Table 2, row 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import container_status, last_end, logic_services, pod_of
from faultset.collector.platforms.api.platform import Platform


def was_restarted(platform: Platform, target: str, parameters: Mapping[str, Any]) -> str | None:
    """See whether the container ended by SIGKILL."""
    status = container_status(platform, target)
    ended = last_end(status)
    if ended.get("exitCode") == 137:
        return f"{parameters['pod']} exited with code 137, {status['restartCount']} restarts"
    return None


@fault(
    "container-kill",
    system_level="Operating System",
    fault_type="Operation Error",
    paper_number=13,
    category="symptomatic",
    targets=logic_services,
    check=was_restarted,
    root_cause_kind="Pod",
    repeat_s=12.0,
    needs=("kill",),
)
def container_kill(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Kill the container's main process; again every twelve seconds if it runs by then."""
    pod = pod_of(platform, target)
    if "running" in container_status(platform, target).get("state", {}):
        platform.kill(pod)
    return {"pod": pod}
