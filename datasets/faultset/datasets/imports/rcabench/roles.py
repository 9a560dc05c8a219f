"""Roles of the OpenTelemetry metrics that datapacks hold."""

from __future__ import annotations

from collections.abc import Mapping

SOURCE = "rcabench"

_ROLES = (
    ("k8s.*.cpu_limit", "limits", "1", "gauge", "sum"),
    ("k8s.*.cpu_request", "limits", "1", "gauge", "sum"),
    ("k8s.*.memory_limit", "limits", "By", "gauge", "sum"),
    ("k8s.*.memory_request", "limits", "By", "gauge", "sum"),
    ("*_limit_utilization", "saturation", "1", "gauge", "max"),
    ("*_request_utilization", "saturation", "1", "gauge", "max"),
    ("*.cpu.node.utilization", "cpu", "1", "gauge", "sum"),
    ("k8s.*.cpu.*", "cpu", "1", "gauge", "sum"),
    ("container.cpu.*", "cpu", "1", "gauge", "sum"),
    ("k8s.*.memory.*", "memory", "By", "gauge", "sum"),
    ("container.memory.*", "memory", "By", "gauge", "sum"),
    ("k8s.*.network.*", "network", "By", "gauge", "sum"),
    ("k8s.*.filesystem.*", "disk", "By", "gauge", "sum"),
    ("container.filesystem.*", "disk", "By", "gauge", "sum"),
    ("k8s.container.restarts", "restarts", "1", "gauge", "sum"),
    ("k8s.container.ready", "state", "1", "gauge", "sum"),
    ("k8s.pod.phase", "state", "1", "gauge", "max"),
    ("k8s.deployment.*", "state", "1", "gauge", "sum"),
    ("k8s.replicaset.*", "state", "1", "gauge", "sum"),
    ("k8s.statefulset.*", "state", "1", "gauge", "sum"),
    ("http.server.request.duration", "latency", "s", "histogram", "sum"),
    ("http.client.request.duration", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_seconds", "latency", "s", "histogram", "sum"),
    ("hubble_http_request_duration_*", "latency", "s", "gauge", "max"),
    ("hubble_http_requests_total", "traffic", "1", "counter", "sum"),
    ("hubble_*", "network", "1", "gauge", "sum"),
    ("jvm.cpu.*", "cpu", "1", "gauge", "sum"),
    ("jvm.system.cpu.*", "cpu", "1", "gauge", "mean"),
    ("jvm.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.buffer.memory.*", "memory", "By", "gauge", "sum"),
    ("jvm.gc.duration", "saturation", "s", "histogram", "sum"),
    ("jvm.thread.*", "threads", "1", "gauge", "sum"),
    ("db.client.connections.*", "saturation", "1", "gauge", "sum"),
)

METRIC_ROLES: tuple[Mapping[str, str], ...] = tuple(
    {"source": SOURCE, "metric": metric, "role": role, "unit": unit, "kind": kind, "combine": combine}
    for metric, role, unit, kind, combine in _ROLES
)
