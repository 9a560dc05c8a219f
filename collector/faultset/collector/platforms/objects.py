"""Kubernetes objects as platforms pass them, and what the state of pods and workloads says."""

from __future__ import annotations

import pickle
import re
from typing import Any, TypeVar

from faultset.core.errors import PlatformError

Object = dict[str, Any]
"""A Kubernetes object as a plain dict: apiVersion, kind, metadata, spec, status, data."""

T = TypeVar("T")


class ObjectNotFound(PlatformError):
    """No object of that kind and name exists."""


def copied(value: T) -> T:
    """Return a copy of plain data that shares nothing with it; faster than `copy.deepcopy`."""
    return pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


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


WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds of objects that own an application's pods."""


def is_rolled_out(workload: Object) -> bool:
    """Say whether all replicas are available and have the workload's present template, and no older one is left.

    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1}})
    True
    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1, "replicas": 2}})
    False
    """
    state, wanted = workload.get("status", {}), workload["spec"].get("replicas", 1)
    made = workload["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", made) >= made
    updated, available = state.get("updatedReplicas", wanted), state.get("availableReplicas", 0)
    return is_seen and updated >= wanted and available >= wanted and state.get("replicas", wanted) <= wanted


def is_as_wanted(resource: Object) -> bool:
    """Say whether the operator of a custom resource has seen its present form and made what it asks for.

    >>> is_as_wanted({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}})
    False

    An operator that does not say which form it has seen is believed.

    >>> is_as_wanted({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    True
    """
    state = resource.get("status", {})
    conditions = {one["type"]: one["status"] for one in state.get("conditions", [])}
    made = resource["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", made) >= made
    return is_seen and bool(conditions) and all(status == "True" for status in conditions.values())


_SUFFIXES = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


def quantity(text: str | float) -> float:
    """Return a Kubernetes quantity as a number: `"250m"` is 0.25, `"64Mi"` is 67108864."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)", str(text))
    if not match or match[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match[1]) * _SUFFIXES[match[2]]
