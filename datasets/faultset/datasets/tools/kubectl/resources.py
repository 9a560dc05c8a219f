"""Recorded states as Kubernetes objects: only fields that were recorded, at the places where Kubernetes has them."""

from __future__ import annotations

from typing import Any

from faultset.datasets.kubectl.kinds import object_kind
from faultset.datasets.kubectl.quantities import cpu_text, memory_text
from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.recording import Recording

UNRECORDED = "<not-recorded>"


def resource(recording: Recording, kind: str, name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return an object with its recorded fields."""
    known = object_kind(kind)
    state = record["state"]
    metadata: dict[str, Any] = {"name": name}
    if known is not None and known.namespaced:
        metadata["namespace"] = recording.namespace
    if record.get("created_ns") is not None:
        metadata["creationTimestamp"] = stamp(record["created_ns"], "seconds")
    if "labels" in state:
        metadata["labels"] = state["labels"]
    if "generation" in state:
        metadata["generation"] = state["generation"]
    made = {"apiVersion": known.api_version if known else "v1", "kind": kind, "metadata": metadata}
    return made | _BODIES[kind](state)


def _pod(state: dict[str, Any]) -> dict[str, Any]:
    containers, first = state.get("containers", []), state.get("initContainers", [])
    return {
        "spec": {
            **({"nodeName": state["node"]} if state.get("node") else {}),
            **({"initContainers": [{"name": one["name"], "image": one["image"]} for one in first]} if first else {}),
            "containers": [{"name": one["name"], "image": one["image"]} for one in containers],
        },
        "status": {
            "phase": state.get("phase"),
            **({"reason": state["reason"]} if state.get("reason") else {}),
            **({"podIP": state["ip"]} if state.get("ip") else {}),
            "conditions": [{"type": "Ready", "status": "True" if state.get("ready") else "False"}],
            **({"initContainerStatuses": [_container_status(one) for one in first]} if first else {}),
            "containerStatuses": [_container_status(one) for one in containers],
        },
    }


def _container_status(one: dict[str, Any]) -> dict[str, Any]:
    detail = {key: one[key] for key in ("reason", "exitCode") if one.get(key) is not None}
    current = detail if one["state"] != "running" else {}
    if one["state"] == "waiting":
        current = {key: value for key, value in current.items() if key == "reason"}
    status = {key: one[key] for key in ("name", "image", "ready", "restartCount")}
    status["state"] = {one["state"]: current}
    if one["restartCount"] and one["state"] != "terminated" and one.get("exitCode") is not None:
        last = {"exitCode": one["exitCode"]}
        status["lastState"] = {"terminated": last | ({"reason": one["reason"]} if one["state"] == "running" else {})}
    return status


def _deployment(state: dict[str, Any]) -> dict[str, Any]:
    limits = {}
    if state.get("cpu_limit") is not None:
        limits["cpu"] = cpu_text(state["cpu_limit"])
    if state.get("memory_limit") is not None:
        limits["memory"] = memory_text(state["memory_limit"])
    container = {key: state[key] for key in ("image", "command", "env") if state.get(key)}
    if limits:
        container["resources"] = {"limits": limits}
    spec = {"containers": [container], **({"nodeSelector": state["nodeSelector"]} if state.get("nodeSelector") else {})}
    return {
        "spec": {"replicas": state.get("replicas"), "template": {"spec": spec}},
        "status": {key: state[key] for key in ("readyReplicas", "availableReplicas") if key in state},
    }


def _replica_set(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "spec": {
            "replicas": state.get("replicas"),
            "template": {"spec": {"containers": [{"image": state.get("image")}]}},
        },
        "status": {"readyReplicas": state.get("readyReplicas")},
    }


def _service(state: dict[str, Any]) -> dict[str, Any]:
    spec = {key: state[key] for key in ("type", "clusterIP", "ports", "selector") if key in state}
    return {"spec": spec}


def _endpoints(state: dict[str, Any]) -> dict[str, Any]:
    ports = [{"port": port} for port in state.get("ports", [])]
    subset: dict[str, Any] = {"ports": ports}
    for key, count in (("addresses", state.get("ready", 0)), ("notReadyAddresses", state.get("notReady", 0))):
        if count:
            subset[key] = [{} for _ in range(count)]
    return {"subsets": [subset] if len(subset) > 1 else []}


def _claim(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "spec": {"volumeName": state["volume"]} if state.get("volume") else {},
        "status": {"phase": state.get("phase")},
    }


def _volume(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "spec": {"claimRef": {"name": state["claim"]}} if state.get("claim") else {},
        "status": {"phase": state.get("phase")},
    }


def _config_map(state: dict[str, Any]) -> dict[str, Any]:
    return {"data": state["data"]} if "data" in state else {}


_BODIES = {
    "Pod": _pod, "Deployment": _deployment, "ReplicaSet": _replica_set, "Service": _service, "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "ConfigMap": _config_map,
}  # fmt: skip
