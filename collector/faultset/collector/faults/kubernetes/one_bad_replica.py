"""One replica of several that runs a bad build, as after a rollout that stopped half-way."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.deployments import container_of
from faultset.collector.faults.intensities import percent_between
from faultset.collector.faults.pods import pods_of
from faultset.collector.faults.registry import fault
from faultset.collector.faults.targets import networked_services
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.platforms.api.pod_state import is_ready
from faultset.collector.runtime.builds import FAILING, SLOWED

_SCALED_S = 30.0


def runs_beside_others(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether one pod runs the bad build, and at least one other does not."""
    ready = [pod for pod in pods_of(platform, target) if is_ready(pod)]
    bad = [pod for pod in ready if _runs(pod, parameters["image"])]
    if bad and len(ready) > len(bad):
        return f"{bad[0]['metadata']['name']} runs {parameters['image']} beside {len(ready) - len(bad)} good pods"
    return None


@fault(
    "one-bad-replica",
    system_level="Application",
    fault_type="Code Defect",
    targets=networked_services,
    check=runs_beside_others,
    at_one_pod=True,
    intensity="one pod of two to four, failing or waiting at "
    f"{percent_between([*FAILING.values(), *(share for share, _ in SLOWED.values())])} of its requests",
    needs=("runtime",),
)
def one_bad_replica(platform: Platform, target: str, rng: np.random.Generator) -> dict[str, Any]:
    """Scale the service out, then let one of its pods run a build that fails or waits at a share of its requests."""
    replicas = int(rng.integers(2, 5))
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted({*SLOWED, *FAILING}))}"
    platform.patch("Deployment", target, {"spec": {"replicas": replicas}})
    what = f"{replicas} pods of {target}"
    platform.wait(lambda: _ready_pods(platform, target) >= replicas, timeout_s=_SCALED_S, what=what)
    pod = pods_of(platform, target)[0]
    containers = copy.deepcopy(pod["spec"]["containers"])
    containers[0]["image"] = image
    platform.patch("Pod", pod["metadata"]["name"], {"spec": {"containers": containers}})
    return {"replicas": replicas, "pod": pod["metadata"]["name"], "image": image}


def _ready_pods(platform: Platform, target: str) -> int:
    return sum(is_ready(pod) for pod in pods_of(platform, target))


def _runs(pod: Object, image: str) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return statuses[0].get("image", "").endswith(image) and "running" in statuses[0].get("state", {})
