"""A pod whose container does nothing (AIOpsLab Table 2, row 9)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import container_status, pod_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import logic_services, with_stores_of_requests
from faultset.collector.platforms.api.capabilities import PodFailer
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.pod_state import BACK_OFF_REASONS
from faultset.collector.spec.containers import PAUSE_REPOSITORY

PAUSE_IMAGE = f"{PAUSE_REPOSITORY}:3.9"


def runs_pause(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the container was restarted with the image that does nothing, or that lacks the program to start."""
    status, image = container_status(platform, target), parameters["image"]
    if status.get("image", "").endswith(image) and "running" in status.get("state", {}):
        return f"{target} runs {image}, restart {status['restartCount']}"
    waiting = (status.get("state", {}).get("waiting") or {}).get("reason")
    if status.get("image", "").endswith(image) and waiting in BACK_OFF_REASONS:
        return f"{target} cannot start its program in {image} ({waiting})"
    return None


@fault(
    "pod-failure",
    system_level="Virtualization",
    fault_type="Operation Error",
    paper_number=9,
    category="symptomatic",
    targets=with_stores_of_requests(logic_services),
    check=runs_pause,
    root_cause_kind="Pod",
)
def pod_failure(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Swap the pod's image in place for one that does nothing and opens no port."""
    pod = pod_of(platform, target)
    if isinstance(platform, PodFailer):
        return {"pod": pod, "image": platform.fail(pod)}
    containers = copy.deepcopy(platform.get("Pod", pod)["spec"]["containers"])
    for container in containers:
        container["image"] = PAUSE_IMAGE
    platform.patch("Pod", pod, {"spec": {"containers": containers}})
    return {"pod": pod, "image": PAUSE_IMAGE}
