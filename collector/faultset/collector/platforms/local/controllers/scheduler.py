"""The scheduler of a cluster with one node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.observation.quantities import quantity
from faultset.collector.platforms.observation.timestamps import rfc3339

NODE = "node-1"
HOSTNAME_LABEL = "kubernetes.io/hostname"
FIRST_RETRY_S = 30.0
LONGEST_RETRY_S = 300.0

_PREEMPTION = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


class Scheduler:
    """Assigns pods to the node, or says at growing intervals why it cannot."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[str, int, float]] = {}

    def reconcile(self, context: Context) -> None:
        """Try every pod that has no node yet."""
        for pod in context.store.each("Pod"):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            obstacle = _obstacle(context, pod)
            if obstacle is None:
                self._attempts.pop(pod["metadata"]["uid"], None)
                _assign(context, pod)
            else:
                self._refuse(context, pod, obstacle)

    def _refuse(self, context: Context, pod: Object, obstacle: str) -> None:
        uid = pod["metadata"]["uid"]
        said, due_ns, wait_s = self._attempts.get(uid, ("", 0, FIRST_RETRY_S))
        if said != obstacle or context.now_ns >= due_ns:
            if said:
                wait_s = min(LONGEST_RETRY_S, 2 * wait_s)
            due_ns = context.now_ns + context.scaled_ns(wait_s)
            self._attempts[uid] = (obstacle, due_ns, wait_s)
            message = f"0/1 nodes are available: {obstacle}. {_PREEMPTION}"
            context.events.warning(pod, "FailedScheduling", message)
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            status = {**pod["status"], "conditions": [condition]}
            context.store.set_status("Pod", pod["metadata"]["name"], status)
        context.requeue(due_ns)


def _assign(context: Context, pod: Object) -> None:
    name = pod["metadata"]["name"]
    context.store.patch("Pod", name, {"spec": {"nodeName": NODE}})
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(context.now_ns)}
    context.store.set_status("Pod", name, {**pod["status"], "conditions": [condition]})
    message = f"Successfully assigned {pod['metadata']['namespace']}/{name} to {NODE}"
    context.events.normal(pod, "Scheduled", message)


def _obstacle(context: Context, pod: Object) -> str | None:
    for volume in pod["spec"].get("volumes", []):
        if "persistentVolumeClaim" not in volume:
            continue
        claim_name = volume["persistentVolumeClaim"]["claimName"]
        claim = context.store.find("PersistentVolumeClaim", claim_name)
        if claim is None:
            return f'persistentvolumeclaim "{claim_name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{claim_name}" is being deleted'
        if claim.get("status", {}).get("phase") != "Bound":
            return "pod has unbound immediate PersistentVolumeClaims"
    node = context.store.get("Node", NODE)
    labels: Mapping[str, Any] = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "1 node(s) didn't match Pod's node affinity/selector"
    return _shortage(context, node, pod)


def _shortage(context: Context, node: Object, pod: Object) -> str | None:
    placed = [found for found in context.store.each("Pod") if found["spec"].get("nodeName")]
    allocatable = node["status"]["allocatable"]
    if len(placed) + 1 > int(allocatable["pods"]):
        return "1 Too many pods"
    for resource in ("cpu", "memory"):
        taken = sum(_requested(found, resource) for found in placed)
        if taken + _requested(pod, resource) > quantity(allocatable[resource]):
            return f"1 Insufficient {resource}"
    return None


def _requested(pod: Object, resource: str) -> float:
    """Return what a pod needs: what its containers request together, or the init container that requests the most."""
    first = (_wanted(container, resource) for container in pod["spec"].get("initContainers") or ())
    return max(sum(_wanted(container, resource) for container in pod["spec"]["containers"]), *first, 0.0)


def _wanted(container: Mapping[str, Any], resource: str) -> float:
    resources = container.get("resources") or {}
    return quantity((resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource, 0)))
