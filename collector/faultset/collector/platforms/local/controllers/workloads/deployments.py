"""Deployments: one ReplicaSet per pod template, swapped by RollingUpdate or Recreate."""

from __future__ import annotations

import math
from typing import Any

from faultset.collector.platforms.api.objects import Object, copied
from faultset.collector.platforms.local.api_server.object_store import owner_reference
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.observation.timestamps import rfc3339

HASH_LABEL = "pod-template-hash"


def reconcile_deployments(context: Context) -> None:
    """Bring the ReplicaSets of every Deployment one step towards its spec."""
    for deployment in context.store.each("Deployment"):
        if deployment["metadata"].get("deletionTimestamp"):
            continue
        new = _current_set(context, deployment)
        old = [found for found in context.store.owned("ReplicaSet", deployment) if found is not new]
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            _recreate(context, deployment, new, old)
        else:
            _roll(context, deployment, new, old)
        _forget_old_sets(context, deployment, old)
        _update_status(context, deployment)


def _current_set(context: Context, deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    digest = context.template_hash(deployment)
    name = f"{deployment['metadata']['name']}-{digest}"
    found = context.store.find("ReplicaSet", name)
    if found is not None:
        return found
    labels = {**template["metadata"].get("labels", {}), HASH_LABEL: digest}
    pod_template = copied(template)
    pod_template.setdefault("metadata", {})["labels"] = labels
    selector = {**deployment["spec"]["selector"].get("matchLabels", {}), HASH_LABEL: digest}
    made: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(deployment)]},
        "spec": {"replicas": 0, "selector": {"matchLabels": selector}, "template": pod_template},
        "status": {"replicas": 0, "readyReplicas": 0, "availableReplicas": 0},
    }
    return context.store.create(made)


def _scale(context: Context, deployment: Object, replica_set: Object, replicas: int) -> None:
    before = replica_set["spec"]["replicas"]
    if replicas == before:
        return
    name = replica_set["metadata"]["name"]
    direction = "up" if replicas > before else "down"
    context.store.patch("ReplicaSet", name, {"spec": {"replicas": replicas}})
    message = f"Scaled {direction} replica set {name} from {before} to {replicas}"
    context.events.normal(deployment, "ScalingReplicaSet", message)


def _recreate(context: Context, deployment: Object, new: Object, old: list[Object]) -> None:
    for replica_set in old:
        _scale(context, deployment, replica_set, 0)
    if not any(context.store.owned("Pod", replica_set) for replica_set in old):
        _scale(context, deployment, new, deployment["spec"]["replicas"])


def _roll(context: Context, deployment: Object, new: Object, old: list[Object]) -> None:
    wanted = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    surge = _share(rolling["maxSurge"], wanted, math.ceil)
    unavailable = _share(rolling["maxUnavailable"], wanted, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    total = new["spec"]["replicas"] + sum(found["spec"]["replicas"] for found in old)
    if new["spec"]["replicas"] > wanted:
        _scale(context, deployment, new, wanted)
    elif new["spec"]["replicas"] < wanted:
        room = max(0, wanted + surge - total)
        _scale(context, deployment, new, min(wanted, new["spec"]["replicas"] + room))
    new = context.store.get("ReplicaSet", new["metadata"]["name"])
    _shrink_old(context, deployment, new, old, max(0, wanted - min(unavailable, wanted)))


def _shrink_old(context: Context, deployment: Object, new: Object, old: list[Object], minimum: int) -> None:
    total = new["spec"]["replicas"] + sum(found["spec"]["replicas"] for found in old)
    new_unavailable = new["spec"]["replicas"] - new["status"].get("availableReplicas", 0)
    removable = total - minimum - max(0, new_unavailable)
    broken_first = sorted(old, key=lambda found: found["status"].get("availableReplicas", 0))
    for replica_set in broken_first:
        replicas = replica_set["spec"]["replicas"]
        broken = replicas - replica_set["status"].get("availableReplicas", 0)
        step = min(max(0, broken), max(0, removable), replicas)
        removable -= step
        _scale(context, deployment, replica_set, replicas - step)
    old = [context.store.get("ReplicaSet", found["metadata"]["name"]) for found in old]
    available = sum(
        min(found["spec"]["replicas"], found["status"].get("availableReplicas", 0)) for found in [new, *old]
    )
    spare = available - minimum
    for replica_set in old:
        step = min(replica_set["spec"]["replicas"], max(0, spare))
        spare -= step
        _scale(context, deployment, replica_set, replica_set["spec"]["replicas"] - step)


def _share(value: int | str, whole: int, rounding: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounding(whole * float(value[:-1]) / 100))
    return int(value)


def _forget_old_sets(context: Context, deployment: Object, old: list[Object]) -> None:
    idle = [found for found in old if not found["spec"]["replicas"] and not found["status"].get("replicas")]
    for replica_set in idle[: max(0, len(idle) - deployment["spec"]["revisionHistoryLimit"])]:
        context.store.delete("ReplicaSet", replica_set["metadata"]["name"])


def _update_status(context: Context, deployment: Object) -> None:
    sets = context.store.owned("ReplicaSet", deployment)
    new = context.template_hash(deployment)
    counts = {field: sum(found["status"].get(field, 0) for found in sets) for field in _COUNTED}
    wanted = deployment["spec"]["replicas"]
    enough = counts["availableReplicas"] >= wanted
    status = deployment.get("status", {})
    before = {condition["type"]: condition for condition in status.get("conditions", [])}
    available = {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
    }
    if before.get("Available", {}).get("status") == available["status"]:
        available = before["Available"]
    else:
        available["lastTransitionTime"] = rfc3339(context.now_ns)
    made = {
        "observedGeneration": deployment["metadata"]["generation"],
        **counts,
        "unavailableReplicas": max(0, wanted - counts["availableReplicas"]),
        "updatedReplicas": sum(
            found["status"].get("replicas", 0) for found in sets if found["metadata"]["labels"][HASH_LABEL] == new
        ),
        "conditions": [available],
    }
    context.store.set_status("Deployment", deployment["metadata"]["name"], made)


_COUNTED = ("replicas", "readyReplicas", "availableReplicas")
