"""Changes to a Deployment's containers, shared by several faults."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from faultset.collector.faults.pods import container_status, pods_of
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import Object, rfc3339

RECREATE: dict[str, Any] = {"type": "Recreate", "rollingUpdate": None}
"""Strategy under which the old pod goes first, as when an operator deletes and applies a Deployment."""


_RESTARTED = "kubectl.kubernetes.io/restartedAt"


def order_restart(platform: Platform, deployment: str, *, recreate: bool = False) -> None:
    """Replace a Deployment's pods as `kubectl rollout restart` does, now and when that is undone.

    A fault that changes what pods read at their start orders the restart first: its undo comes last then, and the new
    pods read what was there before.

    Parameters
    ----------
    recreate
        Whether the old pods go before the new ones come, which may not become ready.
    """
    annotations = {_RESTARTED: rfc3339(time.time_ns())}
    change: dict[str, Any] = {"template": {"metadata": {"annotations": annotations}}}
    if recreate:
        change["strategy"] = RECREATE
    platform.patch("Deployment", deployment, {"spec": change})


def is_restarted(platform: Platform, deployment: str) -> bool:
    """Say whether a restart was ordered, and no pod of before is left."""
    wanted = platform.get("Deployment", deployment)["spec"]["template"]["metadata"].get("annotations", {})
    pods = platform.list("Pod", {platform.app.label_key: deployment})
    return bool(wanted.get(_RESTARTED)) and all(
        (pod["metadata"].get("annotations") or {}).get(_RESTARTED) == wanted[_RESTARTED] for pod in pods
    )


def changed_containers(deployment: Object, **fields: Any) -> list[dict[str, Any]]:
    """Return the Deployment's containers with fields of the first one replaced."""
    containers = copy.deepcopy(deployment["spec"]["template"]["spec"]["containers"])
    containers[0].update(fields)
    return containers


def patch_container(platform: Platform, target: str, *, recreate: bool = False, **fields: Any) -> None:
    """Change fields of the Deployment's first container; its pods are replaced."""
    deployment = platform.get("Deployment", target)
    change: dict[str, Any] = {"template": {"spec": {"containers": changed_containers(deployment, **fields)}}}
    if recreate:
        change["strategy"] = RECREATE
    platform.patch("Deployment", target, {"spec": change})


def set_variables(platform: Platform, target: str, values: Mapping[str, str]) -> None:
    """Set environment variables of the Deployment's first container; its pods are replaced."""
    variables = copy.deepcopy(container_of(platform, target).get("env", []))
    kept = [variable for variable in variables if variable["name"] not in values]
    patch_container(platform, target, env=[*kept, *({"name": name, "value": value} for name, value in values.items())])


def runs_with_variables(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether a pod that runs has the values of `parameters["variables"]`, for the `check` of a fault."""
    wanted: Mapping[str, str] = parameters["variables"]
    for pod in pods_of(platform, target):
        variables = pod["spec"]["containers"][0].get("env", [])
        runs = any("running" in one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", []))
        if runs and wanted.items() <= {variable["name"]: variable.get("value") for variable in variables}.items():
            return f"{pod['metadata']['name']} has {', '.join(f'{name}={value}' for name, value in wanted.items())}"
    return None


def roll_out_build(
    platform: Platform, target: str, rng: np.random.Generator, builds: Collection[str]
) -> dict[str, Any]:
    """Roll out one of several builds, drawn, and return its image."""
    repository = container_of(platform, target)["image"].rpartition(":")[0]
    image = f"{repository}:{rng.choice(sorted(builds))}"
    patch_container(platform, target, image=image)
    return {"image": image}


def runs_new_image(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the newest pod runs the image that was rolled out, for the `check` of a fault."""
    status = container_status(platform, target)
    if status.get("image", "").endswith(parameters["image"]) and "running" in status.get("state", {}):
        return f"{target} runs {status['image']}"
    return None


def container_of(platform: Platform, target: str) -> dict[str, Any]:
    """Return the first container in the Deployment's template."""
    return platform.get("Deployment", target)["spec"]["template"]["spec"]["containers"][0]
