"""The main process killed again and again (AIOpsLab Table 2, row 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import container_status, last_end, pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import running_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import ContainerKiller, require
from faultset.collector.platforms.api.platform import Platform


def restarts(platform: Platform, target: str) -> tuple[int, dict[str, Any]]:
    """Return how often the container was restarted, and how it ended last."""
    status = container_status(platform, target)
    return status.get("restartCount", 0), last_end(status)


def was_killed(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the container has ended by SIGKILL since the injection."""
    count, ended = now = restarts(platform, target)
    if ended.get("exitCode") == 137 and now != before:
        return f"{parameters['pod']} exited with code 137, {count} restarts"
    return None


@fault(
    "container-kill",
    system_level="Operating System",
    fault_type="Operation Error",
    paper_number=13,
    category="symptomatic",
    targets=with_stores_of_requests(running_services),
    check=was_killed,
    observe=restarts,
    check_sees="events",
    root_cause_kind="Pod",
    repeat_s=12.0,
    needs=("kill",),
)
def container_kill(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Kill the container's main process; again every twelve seconds if it runs by then."""
    pod = pod_of(platform, target)
    if "running" in container_status(platform, target).get("state", {}):
        require(platform, ContainerKiller).kill(pod)
    return {"pod": pod}
