"""Pods and Deployments of a service, for faults and their checks."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from faultset.collector.platforms.base import Platform
from faultset.collector.runtime.builds import Defects, draw_builds
from faultset.collector.spec.app import AppSpec
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS, rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

RECREATE: dict[str, Any] = {"type": "Recreate", "rollingUpdate": None}
"""Strategy that deletes the old pod first, as deleting and applying a Deployment does."""

_RESTART_ANNOTATION = "kubectl.kubernetes.io/restartedAt"


def trigger_restart(platform: Platform, deployment: str, *, recreate: bool = False) -> None:
    """Replace a Deployment's pods as `kubectl rollout restart` does, both now and when the change is undone.

    A fault that changes files or Secrets of pods must trigger the restart before the change. The undo then restarts the
    pods after it has restored the content. `recreate` deletes the old pods before the new ones start.
    """
    _replace_pods(
        platform, deployment, {"annotations": {_RESTART_ANNOTATION: rfc3339(time.time_ns())}}, recreate=recreate
    )


def is_restarted(platform: Platform, deployment: str) -> bool:
    """Return whether a restart was triggered and all pods have started since."""
    annotations = platform.get("Deployment", deployment)["spec"]["template"]["metadata"].get("annotations", {})
    pods = platform.list("Pod", {platform.app.label_key: deployment})
    return bool(annotations.get(_RESTART_ANNOTATION)) and all(
        (pod["metadata"].get("annotations") or {}).get(_RESTART_ANNOTATION) == annotations[_RESTART_ANNOTATION]
        for pod in pods
    )


def replace_container_fields(deployment: Object, **fields: Any) -> list[dict[str, Any]]:
    """Return the Deployment's containers with fields of the first one replaced."""
    containers = copy.deepcopy(deployment["spec"]["template"]["spec"]["containers"])
    containers[0].update(fields)
    return containers


def patch_container(platform: Platform, target: str, *, recreate: bool = False, **fields: Any) -> None:
    """Change fields of the Deployment's first container; its pods are replaced."""
    _replace_pods(platform, target, {}, recreate=recreate, **fields)


def _replace_pods(platform: Platform, name: str, metadata: Mapping[str, Any], *, recreate: bool, **fields: Any) -> None:
    """Change a Deployment's template and draw how long its new pods take to become ready."""
    deployment = platform.get("Deployment", name)
    fields = {**build_readiness_probe(platform.app, deployment), **fields}
    template: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if fields:
        template["spec"] = {"containers": replace_container_fields(deployment, **fields)}
    change: dict[str, Any] = {"template": template}
    if recreate:
        change["strategy"] = RECREATE
    platform.patch("Deployment", name, {"spec": change})


def build_readiness_probe(app: AppSpec, deployment: Object) -> dict[str, Any]:
    """Return the field that delays the readiness of new pods; empty if it must not be set."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    probe = container.get("readinessProbe")
    if app.deployed is not None:
        return {}
    if probe is None and container.get("ports"):
        probe = {"tcpSocket": {"port": container["ports"][0]["containerPort"]}, "periodSeconds": 1}
    if probe is None:
        return {}
    metadata = deployment["metadata"]
    delay_s = app.variation.readiness_delay_s(metadata["name"], metadata.get("generation", 0))
    return {"readinessProbe": {**probe, "initialDelaySeconds": delay_s}}


def set_variables(platform: Platform, target: str, values: Mapping[str, str], *, recreate: bool = False) -> None:
    """Set environment variables of the Deployment's first container; its pods are replaced."""
    variables = copy.deepcopy(get_container(platform, target).get("env", []))
    unchanged = [variable for variable in variables if variable["name"] not in values]
    added = [{"name": name, "value": value} for name, value in values.items()]
    patch_container(platform, target, recreate=recreate, env=[*unchanged, *added])


def runs_with_variables(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether a running pod has the values of `parameters["variables"]`."""
    expected: Mapping[str, str] = parameters["variables"]
    for pod in list_pods(platform, target):
        variables = pod["spec"]["containers"][0].get("env", [])
        is_running = any(
            "running" in status.get("state", {}) for status in pod.get("status", {}).get("containerStatuses", [])
        )
        if (
            is_running
            and expected.items() <= {variable["name"]: variable.get("value") for variable in variables}.items()
        ):
            return f"{pod['metadata']['name']} has {', '.join(f'{name}={value}' for name, value in expected.items())}"
    return None


def roll_out_build(
    platform: Platform, target: str, rng: np.random.Generator, choices: Sequence[Defects], *, recreate: bool = False
) -> dict[str, Any]:
    """Roll out a build with a randomly drawn defect; return its image and the defect."""
    build = draw_build(platform, target, rng, choices)
    patch_container(platform, target, recreate=recreate, image=build["image"])
    return build


def draw_build(platform: Platform, target: str, rng: np.random.Generator, choices: Sequence[Defects]) -> dict[str, Any]:
    """Draw a defect; return the image with it and the defect's values."""
    defects = choices[int(rng.integers(len(choices)))]
    repository = get_container(platform, target)["image"].rpartition(":")[0]
    tag = draw_builds(platform.app.variation.seed).tag_with(defects)
    values = {name: value for name, value in asdict(defects).items() if value}
    return {"image": f"{repository}:{tag}", "defects": values}


def runs_new_image(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the newest pod runs the image that was rolled out."""
    status = container_status(platform, target)
    if status.get("image", "").endswith(parameters["image"]) and "running" in status.get("state", {}):
        return f"{target} runs {status['image']}"
    return None


def get_container(platform: Platform, target: str) -> dict[str, Any]:
    """Return the first container in the Deployment's template."""
    return platform.get("Deployment", target)["spec"]["template"]["spec"]["containers"][0]


def list_pods(platform: Platform, service: str) -> list[Object]:
    """Return the pods of a service that are not being deleted, newest last."""
    pods = platform.list("Pod", {platform.app.label_key: service})
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return sorted(alive, key=lambda pod: pod["metadata"]["creationTimestamp"])


def get_pod_name(platform: Platform, service: str) -> str:
    """Return the name of the newest pod of a service; raise PlatformError if it has none."""
    pods = list_pods(platform, service)
    if not pods:
        raise PlatformError(f"{service} has no pod to act on")
    return pods[-1]["metadata"]["name"]


def container_status(platform: Platform, service: str) -> dict[str, Any]:
    """Return the status of the newest pod's first container, or an empty dict if there is none."""
    pods = list_pods(platform, service)
    statuses = pods[-1].get("status", {}).get("containerStatuses", []) if pods else []
    return statuses[0] if statuses else {}


def last_error_line(platform: Platform, pod: str, *, window_s: float = 60.0) -> str | None:
    """Return the newest recent log line of a pod at level error or above, or None."""
    end_ns = time.time_ns()
    batches = platform.sources["logs"].snapshot(end_ns - int(window_s * 1e9), end_ns)
    lines = [row for batch in batches for row in batch.select(["time", "pod", "level", "message"]).to_pylist()]
    errors = [line for line in lines if line["pod"] == pod and line["level"] in ("error", "fatal")]
    return max(errors, key=lambda line: line["time"])["message"] if errors else None


def last_event(platform: Platform, pod: str, reason: str) -> str | None:
    """Return the message of a pod's newest event with that reason in the last three minutes, or None."""
    end_ns = time.time_ns()
    batches = platform.sources["events"].snapshot(end_ns - 180 * SECOND_NS, end_ns)
    rows = [row for batch in batches for row in batch.select(["time", "name", "reason", "message"]).to_pylist()]
    events = [row for row in rows if row["name"] == pod and row["reason"] == reason]
    return max(events, key=lambda row: row["time"])["message"] if events else None


def last_end(status: dict[str, Any]) -> dict[str, Any]:
    """Return the exit code and reason of a container's last termination; empty if it never terminated."""
    return status.get("lastState", {}).get("terminated") or status.get("state", {}).get("terminated") or {}
