"""Objects as the tables that `kubectl get` prints."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import is_ready
from faultset.core.times import SECOND_NS

Row = list[str]


def table(kind: str, objects: Sequence[Object], now_ns: int, *, wide: bool = False, prefix: str = "") -> str:
    """Return objects of one kind as kubectl prints them: a head line, and columns three blanks apart.

    Parameters
    ----------
    wide
        With the columns of `-o wide`.
    prefix
        In front of every name, as when several kinds are shown.
    """
    columns, more, row = _TABLES.get(kind, (("NAME", "AGE"), (), _plain))
    shown = (*columns, *(more if wide else ()))
    rows = [list(shown)]
    for one in objects:
        cells = row(one)
        cells.insert(columns.index("AGE"), age(one["metadata"].get("creationTimestamp"), now_ns))
        rows.append([prefix + one["metadata"]["name"], *cells[1:]][: len(shown)])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as lines, every column as wide as its widest cell."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def age(created: str | None, now_ns: int) -> str:
    """Return how long ago an object was created, as kubectl writes it.

    >>> age("2026-01-01T00:00:00Z", 1767225600_000_000_000 + 130_000_000_000)
    '2m10s'
    """
    if not created:
        return "<unknown>"
    made_s = calendar.timegm(time.strptime(created[:19], "%Y-%m-%dT%H:%M:%S"))
    return duration(now_ns / SECOND_NS - made_s)


def duration(seconds: float) -> str:
    """Return a length of time as kubectl writes it: two units below ten minutes, one or two above."""
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def pod_status(pod: Object) -> str:
    """Return the word that kubectl shows in a pod's column STATUS."""
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in status.get("containerStatuses") or []:
        waiting, ended = (container.get("state", {}).get(name) or {} for name in ("waiting", "terminated"))
        if waiting.get("reason"):
            return waiting["reason"]
        if ended:
            return ended.get("reason") or f"ExitCode:{ended.get('exitCode')}"
    return status.get("reason") or status.get("phase") or "Pending"


def _pod(pod: Object) -> Row:
    status = pod.get("status", {})
    containers = status.get("containerStatuses") or []
    restarts = sum(one.get("restartCount", 0) for one in containers)
    ready = f"{sum(bool(one.get('ready')) for one in containers)}/{len(pod['spec']['containers'])}"
    place = [status.get("podIP") or "<none>", pod["spec"].get("nodeName") or "<none>"]
    return ["", ready, pod_status(pod), str(restarts), *place]


def _deployment(found: Object) -> Row:
    status, wanted = found.get("status", {}), found["spec"].get("replicas", 1)
    containers = found["spec"]["template"]["spec"]["containers"]
    return [
        "",
        f"{status.get('readyReplicas', 0)}/{wanted}",
        str(status.get("updatedReplicas", 0)),
        str(status.get("availableReplicas", 0)),
        ",".join(one["name"] for one in containers),
        ",".join(one["image"] for one in containers),
        _pairs(found["spec"]["selector"].get("matchLabels")),
    ]


def _replica_set(found: Object) -> Row:
    status = found.get("status", {})
    return [
        "",
        str(found["spec"].get("replicas", 0)),
        str(status.get("replicas", 0)),
        str(status.get("readyReplicas", 0)),
        ",".join(one["image"] for one in found["spec"]["template"]["spec"]["containers"]),
    ]


def _stateful_set(found: Object) -> Row:
    return ["", f"{found.get('status', {}).get('readyReplicas', 0)}/{found['spec'].get('replicas', 1)}"]


def _service(found: Object) -> Row:
    spec = found["spec"]
    ports = ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in spec.get("ports") or [])
    return [
        "",
        spec.get("type", "ClusterIP"),
        spec.get("clusterIP") or "<none>",
        "<none>",
        ports or "<none>",
        _pairs(spec.get("selector")),
    ]


def _endpoints(found: Object) -> Row:
    made = [
        f"{address['ip']}:{port['port']}"
        for subset in found.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or []
    ]
    more = f" + {len(made) - 3} more..." if len(made) > 3 else ""
    return ["", ",".join(made[:3]) + more or "<none>"]


def _config_map(found: Object) -> Row:
    return ["", str(len(found.get("data") or {}) + len(found.get("binaryData") or {}))]


def _secret(found: Object) -> Row:
    return ["", found.get("type", "Opaque"), str(len(found.get("data") or found.get("stringData") or {}))]


def _claim(found: Object) -> Row:
    spec, status = found["spec"], found.get("status", {})
    size = (status.get("capacity") or spec.get("resources", {}).get("requests") or {}).get("storage", "")
    modes = ",".join(_short_mode(mode) for mode in spec.get("accessModes") or [])
    volume = spec.get("volumeName", "")
    return [
        "",
        status.get("phase", "Pending"),
        volume,
        size if volume else "",
        modes if volume else "",
        spec.get("storageClassName") or "",
    ]


def _volume(found: Object) -> Row:
    spec = found["spec"]
    claim = spec.get("claimRef") or {}
    owner = f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else ""
    return [
        "",
        (spec.get("capacity") or {}).get("storage", ""),
        ",".join(_short_mode(mode) for mode in spec.get("accessModes") or []),
        spec.get("persistentVolumeReclaimPolicy", "Retain"),
        found.get("status", {}).get("phase", "Available"),
        owner,
        spec.get("storageClassName") or "",
    ]


def _node(found: Object) -> Row:
    return ["", "Ready" if is_ready(found) else "NotReady", "<none>"]


def _plain(found: Object) -> Row:
    return [""]


def _pairs(labels: Mapping[str, Any] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in (labels or {}).items()) or "<none>"


def _short_mode(mode: str) -> str:
    return "".join(letter for letter in mode if letter.isupper())


_TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[Object], Row]]] = {
    "Pod": (("NAME", "READY", "STATUS", "RESTARTS", "AGE"), ("IP", "NODE"), _pod),
    "Deployment": (
        ("NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"),
        ("CONTAINERS", "IMAGES", "SELECTOR"),
        _deployment,
    ),
    "ReplicaSet": (("NAME", "DESIRED", "CURRENT", "READY", "AGE"), ("IMAGES",), _replica_set),
    "StatefulSet": (("NAME", "READY", "AGE"), (), _stateful_set),
    "Service": (("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"), ("SELECTOR",), _service),
    "Endpoints": (("NAME", "ENDPOINTS", "AGE"), (), _endpoints),
    "ConfigMap": (("NAME", "DATA", "AGE"), (), _config_map),
    "Secret": (("NAME", "TYPE", "DATA", "AGE"), (), _secret),
    "PersistentVolumeClaim": (
        ("NAME", "STATUS", "VOLUME", "CAPACITY", "ACCESS MODES", "STORAGECLASS", "AGE"),
        (),
        _claim,
    ),
    "PersistentVolume": (
        ("NAME", "CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS", "AGE"),
        (),
        _volume,
    ),
    "Node": (("NAME", "STATUS", "ROLES", "AGE"), (), _node),
}
