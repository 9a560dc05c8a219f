"""What the state of a pod says."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.api.objects import Object

BACK_OFF_REASONS = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
)


def is_active(pod: Object) -> bool:
    """Say whether a pod counts for its owner: neither ended nor being deleted."""
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and not pod["metadata"].get("deletionTimestamp")


def is_ready(pod: Object) -> bool:
    """Say whether the pod's Ready condition holds."""
    conditions = pod.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def container_statuses(pod: Object) -> list[dict[str, Any]]:
    """Return the statuses of a pod's containers, those of init containers first."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def is_unschedulable(pod: Object) -> bool:
    """Say whether no node can take the pod.

    >>> is_unschedulable({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}})
    True
    """
    conditions = pod.get("status", {}).get("conditions") or []
    return any(condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions)


def waits_in_back_off(pod: Object) -> bool:
    """Say whether the kubelet waits before it tries a container of the pod again.

    >>> waits_in_back_off({"status": {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}})
    True
    >>> waits_in_back_off({"status": {"containerStatuses": [{"state": {"running": {}}}]}})
    False
    """
    return any(
        (one.get("state", {}).get("waiting") or {}).get("reason") in BACK_OFF_REASONS for one in container_statuses(pod)
    )
