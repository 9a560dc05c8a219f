"""Print objects as the tables of `kubectl get`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.datasets.kubectl.kinds import type_name
from faultset.datasets.kubectl.printing import UNRECORDED, format_columns

Object = dict[str, Any]
"""A Kubernetes object as a plain dict: apiVersion, kind, metadata, spec, status, data."""
Cells = dict[str, object]
"""Content of cells by the name of their column."""
_MAX_ENDPOINTS = 3


def object_tables(
    rows: Mapping[str, Sequence[Mapping[str, object]]],
    *,
    wide: bool = False,
    namespaces: bool = False,
    labels: bool = False,
    header: bool = True,
    show_kind: bool = False,
    unknown: str = "<none>",
) -> str:
    """Return a table with kubectl's columns for each kind that has rows; `unknown` fills missing cells.

    `wide`, `namespaces` and `labels` add the columns of `-o wide`, `-A` and `--show-labels`. With `show_kind` or
    several kinds, the kind precedes every name.
    """
    tables = []
    for kind, objects in rows.items():
        columns, more = _COLUMNS.get(kind, (("NAME", "AGE"), ()))
        names = [*(["NAMESPACE"] if namespaces else ()), *columns, *(more if wide else ())]
        names += ["LABELS"] if labels else []
        prefix = f"{type_name(kind)}/" if show_kind or len(rows) > 1 else ""
        cells = [
            [prefix + str(row[name]) if name == "NAME" else row.get(name, unknown) for name in names] for row in objects
        ]
        if cells:
            tables.append(format_columns(names if header else (), cells))
    return "\n\n".join(tables)


def object_cells(body: Mapping[str, Any]) -> Cells:
    """Return the cells of an object except for its age; missing fields have their defaults."""
    cells = _CELLS.get(body["kind"])
    metadata = body["metadata"]
    return {
        "NAMESPACE": metadata.get("namespace", ""),
        "NAME": metadata["name"],
        "LABELS": pairs(metadata.get("labels")),
        **(cells(body) if cells else {}),
    }


def pod_status(pod: Mapping[str, Any]) -> str:
    """Return the content of a pod's column STATUS.

    >>> pod_status({"metadata": {}, "status": {"phase": "Running", "containerStatuses": [
    ...     {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    'CrashLoopBackOff'
    """
    status = pod.get("status") or {}
    if is_terminating(pod):
        return "Terminating"
    if (word := _initializing(pod)) is not None:
        return word
    for container in status.get("containerStatuses") or []:
        waiting, ended = ((container.get("state") or {}).get(name) for name in ("waiting", "terminated"))
        if waiting and waiting.get("reason"):
            return waiting["reason"]
        if ended is not None:
            return ended.get("reason") or f"ExitCode:{ended.get('exitCode')}"
    return status.get("reason") or status.get("phase") or "Pending"


def is_terminating(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is being deleted; in datasets, the reason in its status says so."""
    return bool(pod["metadata"].get("deletionTimestamp")) or (pod.get("status") or {}).get("reason") == "Terminating"


def _initializing(pod: Mapping[str, Any]) -> str | None:
    """Return the status of a pod with unfinished or failed init containers, or None."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or []
    for number, container in enumerate(statuses):
        waiting, ended = ((container.get("state") or {}).get(name) for name in ("waiting", "terminated"))
        if ended is not None and (ended.get("exitCode") == 0 or ended.get("reason") == "Completed"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or 'ExitCode:' + str(ended.get('exitCode'))}"
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{number}/{len(statuses)}"
    return None


def pairs(labels: Mapping[str, Any] | None) -> str:
    """Return labels or a selector on one line.

    >>> pairs({"b": 1, "a": 2}), pairs(None)
    ('a=2,b=1', '<none>')
    """
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def _pod(pod: Mapping[str, Any]) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    restarting = (status.get("initContainerStatuses") or containers) if _initializing(pod) else containers
    return {
        "READY": f"{sum(bool(item.get('ready')) for item in containers)}/{max(1, len(spec.get('containers') or []))}",
        "STATUS": pod_status(pod),
        "RESTARTS": sum(status.get("restartCount", 0) for status in restarting),
        "IP": status.get("podIP") or "<none>",
        "NODE": spec.get("nodeName") or "<none>",
    }


def _deployment(body: Mapping[str, Any]) -> Cells:
    status = body.get("status") or {}
    return {
        "READY": _ready(body),
        "UP-TO-DATE": status.get("updatedReplicas", 0),
        "AVAILABLE": status.get("availableReplicas", 0),
        **_template(body["spec"]),
    }


def _replica_set(body: Mapping[str, Any]) -> Cells:
    status = body.get("status") or {}
    return {
        "DESIRED": body["spec"].get("replicas", 1),
        "CURRENT": status.get("replicas", 0),
        "READY": status.get("readyReplicas", 0),
        **_template(body["spec"]),
    }


def _stateful_set(body: Mapping[str, Any]) -> Cells:
    return {"READY": _ready(body), **_template(body["spec"])}


def _ready(body: Mapping[str, Any]) -> str:
    return f"{(body.get('status') or {}).get('readyReplicas', 0)}/{body['spec'].get('replicas', 1)}"


def _template(spec: Mapping[str, Any]) -> Cells:
    containers = spec["template"]["spec"]["containers"]
    return {
        "CONTAINERS": ",".join(container.get("name") or "" for container in containers),
        "IMAGES": ",".join(container.get("image") or "" for container in containers),
        "SELECTOR": pairs((spec.get("selector") or {}).get("matchLabels")),
    }


def _service(body: Mapping[str, Any]) -> Cells:
    spec = body["spec"]
    ports = ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in spec.get("ports") or [])
    return {
        "TYPE": spec.get("type", "ClusterIP"),
        "CLUSTER-IP": spec.get("clusterIP") or "<none>",
        "EXTERNAL-IP": "<none>",
        "PORT(S)": ports or "<none>",
        "SELECTOR": pairs(spec.get("selector")),
    }


def endpoint_texts(endpoints: Mapping[str, Any]) -> list[str]:
    """Return the ready addresses with their ports; datasets record only how many addresses there are."""
    return [
        f"{address.get('ip', UNRECORDED)}:{port['port']}"
        for subset in endpoints.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or [{"port": "?"}]
    ]


def _endpoints(endpoints: Mapping[str, Any]) -> Cells:
    texts = endpoint_texts(endpoints)
    more = f" + {len(texts) - _MAX_ENDPOINTS} more..." if len(texts) > _MAX_ENDPOINTS else ""
    return {"ENDPOINTS": ",".join(texts[:_MAX_ENDPOINTS]) + more or "<none>"}


def _config_map(body: Mapping[str, Any]) -> Cells:
    return {"DATA": len(body.get("data") or {}) + len(body.get("binaryData") or {})}


def _secret(body: Mapping[str, Any]) -> Cells:
    return {"TYPE": body.get("type", "Opaque"), "DATA": len(body.get("data") or body.get("stringData") or {})}


def _claim(body: Mapping[str, Any]) -> Cells:
    spec, status = body["spec"], body.get("status") or {}
    volume = spec.get("volumeName", "")
    return {
        "STATUS": status.get("phase", "Pending"),
        "VOLUME": volume,
        "CAPACITY": (status.get("capacity") or {}).get("storage", "") if volume else "",
        "ACCESS MODES": _modes(spec) if volume else "",
        "STORAGECLASS": spec.get("storageClassName") or "",
        "VOLUMEMODE": spec.get("volumeMode", "Filesystem"),
    }


def _volume(body: Mapping[str, Any]) -> Cells:
    spec, status = body["spec"], body.get("status") or {}
    claim = spec.get("claimRef") or {}
    return {
        "CAPACITY": (spec.get("capacity") or {}).get("storage", ""),
        "ACCESS MODES": _modes(spec),
        "RECLAIM POLICY": spec.get("persistentVolumeReclaimPolicy", "Retain"),
        "STATUS": status.get("phase", "Available"),
        "CLAIM": f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else "",
        "STORAGECLASS": spec.get("storageClassName") or "",
        "REASON": status.get("reason", ""),
        "VOLUMEMODE": spec.get("volumeMode", "Filesystem"),
    }


def _modes(spec: Mapping[str, Any]) -> str:
    return ",".join("".join(filter(str.isupper, mode)) for mode in spec.get("accessModes") or [])


def _node(body: Mapping[str, Any]) -> Cells:
    status = body.get("status") or {}
    conditions = status.get("conditions") or []
    is_ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    version = (status.get("nodeInfo") or {}).get("kubeletVersion", "")
    return {"STATUS": "Ready" if is_ready else "NotReady", "ROLES": "<none>", "VERSION": version}


_WORKLOAD_WIDE = ("CONTAINERS", "IMAGES", "SELECTOR")
_COLUMNS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "Pod": (("NAME", "READY", "STATUS", "RESTARTS", "AGE"), ("IP", "NODE", "NOMINATED NODE", "READINESS GATES")),
    "Deployment": (("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"), _WORKLOAD_WIDE),
    "ReplicaSet": (("NAME", "DESIRED", "CURRENT", "READY", "AGE"), _WORKLOAD_WIDE),
    "StatefulSet": (("NAME", "READY", "AGE"), ("CONTAINERS", "IMAGES")),
    "Service": (("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"), ("SELECTOR",)),
    "Endpoints": (("NAME", "ENDPOINTS", "AGE"), ()),
    "ConfigMap": (("NAME", "DATA", "AGE"), ()),
    "Secret": (("NAME", "TYPE", "DATA", "AGE"), ()),
    "PersistentVolumeClaim": (
        ("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "AGE"),
        ("VOLUMEMODE",),
    ),
    "PersistentVolume": (
        ("NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "REASON", "AGE"),
        ("VOLUMEMODE",),
    ),
    "Node": (("NAME", "STATUS", "ROLES", "AGE", "VERSION"), ()),
}
"""Columns of each kind, and the additional columns of `-o wide`."""
_CELLS: dict[str, Callable[[Mapping[str, Any]], Cells]] = {
    "Pod": _pod, "Deployment": _deployment, "ReplicaSet": _replica_set, "StatefulSet": _stateful_set,
    "Service": _service, "Endpoints": _endpoints, "ConfigMap": _config_map, "Secret": _secret,
    "PersistentVolumeClaim": _claim, "PersistentVolume": _volume, "Node": _node,
}  # fmt: skip
