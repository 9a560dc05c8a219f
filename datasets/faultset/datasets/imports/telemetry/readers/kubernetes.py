"""Read Kubernetes events and objects in the JSON format of the API and of kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from faultset.datasets.imports.telemetry.readers.context import ReadingContext
from faultset.datasets.imports.telemetry.rows import Origin, short_name
from faultset.datasets.telemetry_formats.kubernetes_objects import (
    RECORDED_KINDS,
    event_time,
    is_custom,
    record_state,
    render_texts,
)
from faultset.datasets.telemetry_formats.otlp_json import read_int

_APP_LABELS = ("app.kubernetes.io/name", "app", "k8s-app", "app.kubernetes.io/component", "name")
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "Rollout"})


def read_event(event: Mapping[str, Any], context: ReadingContext) -> None:
    """Read an event of either API version."""
    subject = event.get("involvedObject") or event.get("regarding")
    subject = subject if isinstance(subject, Mapping) else {}
    metadata = event.get("metadata")
    series = event.get("series") if isinstance(event.get("series"), Mapping) else {}
    kind, name = short_name(subject.get("kind")), short_name(subject.get("name"))
    count = read_int((series or {}).get("count")) or read_int(event.get("count") or event.get("deprecatedCount")) or 1
    origin = Origin(namespace=short_name(subject.get("namespace")))
    if kind == "Pod":
        origin = origin._replace(pod=name)
    elif kind in WORKLOADS:
        origin = origin._replace(workload=name)
    row = {
        "type": short_name(event.get("type")) or "Normal",
        "reason": short_name(event.get("reason")),
        "kind": kind,
        "name": name or short_name(metadata.get("name") if isinstance(metadata, Mapping) else ""),
        "message": context.rows.redact.hide(str(event.get("message") or event.get("note") or "").strip()),
        "count": min(count, (1 << 31) - 1),
    }
    context.rows.add("events", origin, context.parse_time(event_time(event)), row)


def read_object(resource: Mapping[str, Any], context: ReadingContext, time_ns: int | None) -> None:
    """Read the state of an object; `time_ns` is the time of the snapshot, or None if unknown."""
    kind = short_name(resource.get("kind"))
    metadata = resource.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        context.rows.drop("is an object without a name")
        return
    if kind == "Secret" or (kind not in RECORDED_KINDS and not is_custom(dict(resource))):
        context.rows.drop(f"is of kind {kind or 'unknown'}, which is not kept")
        return
    name = short_name(metadata["name"])
    labels = metadata.get("labels")
    labels = labels if isinstance(labels, Mapping) else {}
    origin = Origin(
        service=next((short_name(labels[key]) for key in _APP_LABELS if labels.get(key)), ""),
        workload=name if kind in WORKLOADS else _find_owner(metadata),
        pod=name if kind == "Pod" else "",
        namespace=short_name(metadata.get("namespace")),
    )
    try:
        state = record_state(dict(resource), kind)
        data = render_texts(resource) if kind == "ConfigMap" else None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        context.rows.drop(f"is a {kind} without fields that every {kind} has")
        return
    if time_ns is None:
        time_ns = _latest_change(resource, context)
        context.rows.note("the state of the object gets the time of its last recorded change")
    row = {"kind": kind, "name": name, "state": context.rows.redact.hide(state), "data": data}
    context.rows.add("objects", origin, time_ns, row)


def _find_owner(metadata: Mapping[str, Any]) -> str:
    for reference in metadata.get("ownerReferences") or ():
        if isinstance(reference, Mapping) and reference.get("name"):
            name = short_name(reference["name"])
            return name.rpartition("-")[0] if reference.get("kind") == "ReplicaSet" else name
    return ""


def _latest_change(resource: Mapping[str, Any], context: ReadingContext) -> int | None:
    """Return the latest time in an object: that of its creation, its conditions or its managed fields."""
    times: list[int] = []
    pending: list[Any] = [resource.get("metadata"), resource.get("status")]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            for name, item in value.items():
                if isinstance(item, str) and (name.endswith(("Time", "Timestamp", "At")) or name == "time"):
                    time_ns = context.parse_time(item)
                    times += [] if time_ns is None else [time_ns]
                elif isinstance(item, Mapping | list):
                    pending.append(item)
        elif isinstance(value, list):
            pending += value[:1_000]
    return max(times, default=None)
