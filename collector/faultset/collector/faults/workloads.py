"""Faults in Deployments, pods, containers and volumes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from numpy.random import Generator

from faultset.collector.faults.deployments import (
    RECREATE,
    container_status,
    get_container,
    get_pod_name,
    last_end,
    list_pods,
    patch_container,
)
from faultset.collector.faults.registry import Parameters, fault
from faultset.collector.faults.stores import flush_caches, restart_consumers
from faultset.collector.faults.targets import (
    add_stores_of_requests,
    list_databases_with_claim,
    list_internal_services,
    list_logic_services,
)
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import BACK_OFF_REASONS
from faultset.collector.spec.containers import PAUSE_REPOSITORY


def has_no_pods(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    replicas = platform.get("Deployment", target)["spec"]["replicas"]
    return (
        f"Deployment {target} has 0 replicas and no pod" if replicas == 0 and not list_pods(platform, target) else None
    )


_TARGETS = add_stores_of_requests(list_logic_services)
_POD = {
    "system_level": "Virtualization",
    "fault_type": "Operation Error",
    "category": "symptomatic",
    "root_cause_kind": "Pod",
    "targets": _TARGETS,
}
_WORKLOAD = {"system_level": "Virtualization", "targets": _TARGETS}


@fault("scale-to-zero", **_WORKLOAD, fault_type="Operation Error", paper_number=6, check=has_no_pods)
def scale_to_zero(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Scale the Deployment to zero replicas."""
    platform.patch("Deployment", target, {"spec": {"replicas": 0}})
    return {"replicas": 0}


def is_unscheduled(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether all pods of the target wait for a node."""
    pods = list_pods(platform, target)
    if pods and all(pod["status"].get("phase") == "Pending" and not pod["spec"].get("nodeName") for pod in pods):
        return f"pod {pods[-1]['metadata']['name']} is Pending without a node"
    return None


@fault("nonexistent-node", **_WORKLOAD, fault_type="Dependency Problem", paper_number=7, check=is_unscheduled)
def nonexistent_node(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Select a node that does not exist; the old pod stops before the new one is scheduled."""
    node = f"node-{int(rng.integers(20, 90))}"
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}}
    platform.patch("Deployment", target, {"spec": {"strategy": RECREATE, "template": {"spec": selector}}})
    return {"node": node}


def waits_for_image(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    waiting = container_status(platform, target).get("state", {}).get("waiting") or {}
    reason = waiting.get("reason")
    return f"{target} waits: {reason}" if reason in ("ErrImagePull", "ImagePullBackOff") else None


@fault("missing-image", **_WORKLOAD, fault_type="Misconfiguration", check=waits_for_image)
def missing_image(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a tag that does not exist; the old pod stops before the new one starts."""
    current = get_container(platform, target)["image"]
    repository = current.rpartition(":")[0] if ":" in current.rpartition("/")[2] else current
    major, minor, candidate = (int(number) for number in rng.integers((3, 0, 1), (9, 9, 5)))
    image = f"{repository}:{major}.{minor}.0-rc{candidate}"
    patch_container(platform, target, recreate=True, image=image)
    return {"image": image}


PAUSE_IMAGE = f"{PAUSE_REPOSITORY}:3.9"


def runs_pause(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the container runs the pause image or cannot start in the new image."""
    status, image = container_status(platform, target), parameters["image"]
    if status.get("image", "").endswith(image) and "running" in status.get("state", {}):
        return f"{target} runs {image}, restart {status['restartCount']}"
    waiting = (status.get("state", {}).get("waiting") or {}).get("reason")
    if status.get("image", "").endswith(image) and waiting in BACK_OFF_REASONS:
        return f"{target} cannot start its program in {image} ({waiting})"
    return None


@fault("pod-failure", **_POD, paper_number=9, check=runs_pause)
def pod_failure(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Replace the pod's image in place with one that does nothing and opens no port."""
    pod = get_pod_name(platform, target)
    if (image := platform.fail(pod)) is not None:
        return {"pod": pod, "image": image}
    containers = copy.deepcopy(platform.get("Pod", pod)["spec"]["containers"])
    for container in containers:
        container["image"] = PAUSE_IMAGE
    platform.patch("Pod", pod, {"spec": {"containers": containers}})
    return {"pod": pod, "image": PAUSE_IMAGE}


def pod_names(platform: Platform, target: str) -> tuple[str, ...]:
    return tuple(pod["metadata"]["name"] for pod in list_pods(platform, target))


def was_replaced(platform: Platform, target: str, parameters: Mapping[str, Any], before: tuple[str, ...]) -> str | None:
    names = pod_names(platform, target)
    removed, new = [name for name in before if name not in names], [name for name in names if name not in before]
    return f"{new[-1]} has replaced {removed[-1]}" if removed and new else None


@fault("pod-kill", **_POD, check=was_replaced, observe=pod_names, check_sees="events", repeat_s=4.0)
def pod_kill(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Delete the pod without a grace period, and its successors every four seconds."""
    pod = get_pod_name(platform, target)
    platform.delete("Pod", pod, grace_period_s=0)
    return {"pod": pod}


def restarts(platform: Platform, target: str) -> tuple[int, dict[str, Any]]:
    """Return the container's number of restarts and its last termination."""
    status = container_status(platform, target)
    return status.get("restartCount", 0), last_end(status)


def was_killed(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the container has been killed by SIGKILL since the injection."""
    count, termination = current = restarts(platform, target)
    if termination.get("exitCode") == 137 and current != before:
        return f"{parameters['pod']} exited with code 137, {count} restarts"
    return None


@fault(
    "container-kill",
    system_level="Operating System",
    fault_type="Operation Error",
    paper_number=13,
    category="symptomatic",
    targets=add_stores_of_requests(list_internal_services),
    check=was_killed,
    observe=restarts,
    check_sees="events",
    root_cause_kind="Pod",
    repeat_s=12.0,
    needs=("kill",),
)
def container_kill(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Kill the container's main process every twelve seconds."""
    pod = get_pod_name(platform, target)
    if "running" in container_status(platform, target).get("state", {}):
        platform.kill(pod)
    return {"pod": pod}


def claim_is_pending(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    claim = platform.get("PersistentVolumeClaim", parameters["claim"])
    pods = list_pods(platform, target)
    if claim.get("status", {}).get("phase") == "Pending" and pods and pods[-1]["status"].get("phase") == "Pending":
        return f"claim {parameters['claim']} and pod {pods[-1]['metadata']['name']} are Pending"
    return None


@fault(
    "redeploy-without-pv",
    system_level="Virtualization",
    fault_type="Operation Error",
    paper_number=14,
    targets=list_databases_with_claim,
    check=claim_is_pending,
    root_cause_kind="PersistentVolumeClaim",
    needs=("exec", "runtime"),
)
def redeploy_without_pv(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Redeploy the store with a new claim; the released volume still names the old claim and does not bind."""
    name = platform.app.services[target].claim
    assert name is not None
    claim = platform.get("PersistentVolumeClaim", name)
    spec = {key: value for key, value in claim["spec"].items() if key != "volumeName"}
    platform.patch("Deployment", target, {"spec": {"replicas": 0}})
    platform.wait(lambda: not list_pods(platform, target), timeout_s=40, what=f"the end of {target}'s pod")
    platform.delete("PersistentVolumeClaim", name)
    platform.wait(
        lambda: all(c["metadata"]["name"] != name for c in platform.list("PersistentVolumeClaim")),
        timeout_s=30,
        what=f"the deletion of claim {name}",
    )
    metadata = {"name": name, "labels": claim["metadata"].get("labels", {})}
    platform.apply([{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}])
    platform.patch("Deployment", target, {"spec": {"replicas": 1}})
    caches = flush_caches(platform, target)
    return {"claim": name, "flushed": caches, "restarted": restart_consumers(platform, target)}
