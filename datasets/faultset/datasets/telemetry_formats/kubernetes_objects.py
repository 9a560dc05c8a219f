"""Recorded fields of Kubernetes objects, and Kubernetes' notation of quantities and times."""

from __future__ import annotations

import calendar
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS

Object = dict[str, Any]
"""A Kubernetes object as a plain dict: apiVersion, kind, metadata, spec, status, data."""
_SUFFIXES = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


def quantity(text: str | float) -> float:
    """Return a Kubernetes quantity as a number: `"250m"` is 0.25, `"64Mi"` is 67108864."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    if not match or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a Kubernetes quantity")
    return float(match[1]) * _SUFFIXES[match[2]]


LARGEST_TEXTS = 256 * 1024
"""Maximum recorded size of a ConfigMap in characters; Kubernetes allows 1 MiB."""
HIDDEN = "<hidden>"
_SECRET_KEY = re.compile(r"passw|secret|token|credential|(?:private|api|access)[-_.]?key", re.IGNORECASE)


def render_texts(config_map: Mapping[str, Any]) -> str | None:
    """Return the strings of a ConfigMap as canonical JSON; None if they are too long.

    Strings are hidden if their key looks like a secret's.
    """
    texts = {key: HIDDEN if _SECRET_KEY.search(key) else text for key, text in (config_map.get("data") or {}).items()}
    rendered = canonical_json(texts)
    return rendered if len(rendered) <= LARGEST_TEXTS else None


def _deployment(workload: Object) -> dict[str, Any]:
    spec, status = workload["spec"]["template"]["spec"], workload.get("status", {})
    container = spec["containers"][0]
    limits = (container.get("resources") or {}).get("limits") or {}
    return {
        "replicas": workload["spec"]["replicas"],
        "readyReplicas": status.get("readyReplicas", 0),
        "availableReplicas": status.get("availableReplicas", 0),
        "generation": workload["metadata"]["generation"],
        "image": container["image"],
        "command": [*(container.get("command") or ()), *(container.get("args") or ())],
        "nodeSelector": spec.get("nodeSelector") or {},
        "cpu_limit": quantity(limits["cpu"]) if "cpu" in limits else None,
        "memory_limit": quantity(limits["memory"]) if "memory" in limits else None,
    }


def _pod(pod: Object) -> dict[str, Any]:
    status = pod.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    initial = status.get("initContainerStatuses") or []
    reason = conditions.get("PodScheduled", {}).get("reason")
    if pod["metadata"].get("deletionTimestamp"):
        reason = "Terminating"
    return {
        "phase": status.get("phase", "Pending"),
        "node": pod["spec"].get("nodeName"),
        "ready": conditions.get("Ready", {}).get("status") == "True",
        "reason": reason,
        "containers": [_container(container) for container in status.get("containerStatuses", [])],
        **({"initContainers": [_container(container) for container in initial]} if initial else {}),
    }


def _container(status: dict[str, Any]) -> dict[str, Any]:
    (state, detail), *_ = status["state"].items()
    ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated") or {}
    return {
        "name": status["name"],
        "image": status["image"],
        "ready": status["ready"],
        "restartCount": status["restartCount"],
        "state": state,
        "reason": detail.get("reason") or ended.get("reason"),
        "exitCode": ended.get("exitCode"),
    }


def _service(service: Object) -> dict[str, Any]:
    ports = [{"port": port["port"], "targetPort": port["targetPort"]} for port in service["spec"].get("ports", [])]
    return {"ports": ports, "selector": service["spec"].get("selector") or {}}


def _endpoints(endpoints: Object) -> dict[str, Any]:
    subsets = endpoints.get("subsets") or []
    return {
        "ready": sum(len(subset.get("addresses") or ()) for subset in subsets),
        "notReady": sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets),
        "ports": sorted({port["port"] for subset in subsets for port in subset.get("ports") or ()}),
    }


def _claim(claim: Object) -> dict[str, Any]:
    return {"phase": claim.get("status", {}).get("phase"), "volume": claim["spec"].get("volumeName")}


def _volume(volume: Object) -> dict[str, Any]:
    claim = (volume["spec"].get("claimRef") or {}).get("name")
    return {"phase": volume.get("status", {}).get("phase"), "claim": claim}


def _data(resource: Object) -> dict[str, Any]:
    texts = {key: resource[key] for key in ("data", "stringData", "binaryData") if resource.get(key)}
    return {"digest": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]}


def _replica_set(replica_set: Object) -> dict[str, Any]:
    return {
        "replicas": replica_set["spec"]["replicas"],
        "readyReplicas": replica_set.get("status", {}).get("readyReplicas", 0),
        "image": replica_set["spec"]["template"]["spec"]["containers"][0]["image"],
    }


def is_custom(resource: Object | None) -> bool:
    """Return whether an object is a custom resource, by its API group.

    >>> is_custom({"apiVersion": "pingcap.com/v1alpha1"}), is_custom({"apiVersion": "storage.k8s.io/v1"})
    (True, False)
    """
    group = "" if resource is None else resource.get("apiVersion", "").rpartition("/")[0]
    return "." in group and not group.endswith(".k8s.io")


def _custom_resource(resource: Object) -> dict[str, Any]:
    status = resource.get("status") or {}
    conditions = [
        {key: condition.get(key) for key in ("type", "status", "reason", "message")}
        for condition in status.get("conditions") or ()
    ]
    phases = {
        component: state["phase"] for component, state in status.items() if isinstance(state, dict) and "phase" in state
    }
    generation = resource["metadata"].get("generation")
    return {"generation": generation, "spec": resource.get("spec") or {}, "conditions": conditions, "phases": phases}


WHITELISTS: dict[str, Callable[[Object], dict[str, Any]]] = {
    "Deployment": _deployment,
    "StatefulSet": _deployment,
    "ReplicaSet": _replica_set,
    "Pod": _pod,
    "Service": _service,
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "ConfigMap": _data,
}

RECORDED_KINDS = frozenset(WHITELISTS)
"""Kinds of objects whose state is recorded, in addition to custom resources."""


def record_state(resource: Object, kind: str) -> str:
    """Return the recorded fields of an object as canonical JSON; an unknown kind is read as a custom resource."""
    return json.dumps(WHITELISTS.get(kind, _custom_resource)(resource), sort_keys=True, separators=(",", ":"))


def parse_rfc3339_ns(text: str) -> int:
    """Return the nanoseconds since 1970 of a UTC time with up to nine decimals."""
    date, _, rest = text.rstrip("Z").partition(".")
    numbers = [int(date[start:end]) for start, end in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
    return calendar.timegm((*numbers, 0, 0, 0)) * SECOND_NS + int(rest.ljust(9, "0")[:9] or 0)


def event_time(event: Mapping[str, Any]) -> str | None:
    """Return the most precise time at which an event last happened; None if it has no time."""
    series = event.get("series")
    precise = (series.get("lastObservedTime") if isinstance(series, Mapping) else None) or event.get("eventTime")
    if precise and "." in precise:
        return precise
    stamps = (event.get(name) for name in ("lastTimestamp", "deprecatedLastTimestamp", "firstTimestamp"))
    metadata = event.get("metadata")
    created = metadata.get("creationTimestamp") if isinstance(metadata, Mapping) else None
    return next(filter(None, (*stamps, precise, created)), None)
