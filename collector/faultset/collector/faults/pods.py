"""Pods and containers of a service, for faults and their checks."""

from __future__ import annotations

import time
from typing import Any

from faultset.collector.platforms.base import Platform
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object


def list_pods(platform: Platform, service: str) -> list[Object]:
    """Return the pods of a service that are not being deleted, newest last."""
    pods = platform.list("Pod", {platform.app.label_key: service})
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    return sorted(alive, key=lambda pod: pod["metadata"]["creationTimestamp"])


def get_pod_name(platform: Platform, service: str) -> str:
    """Return the name of the newest pod of a service.

    Raises
    ------
    PlatformError
        The service has no pod.
    """
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
