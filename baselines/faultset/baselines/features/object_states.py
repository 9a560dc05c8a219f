"""Faulty states of Kubernetes objects: named signs in the observed state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

State = Mapping[str, Any]

_BAD_WAITING = frozenset({
    "CrashLoopBackOff",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
})  # fmt: skip
_SPECIFIED: Mapping[str, tuple[str, ...]] = {
    "Deployment": (
        "replicas",
        "generation",
        "image",
        "command",
        "nodeSelector",
        "cpu_limit",
        "memory_limit",
    ),
    "Service": ("ports", "selector"),
    "ConfigMap": ("digest",),
    "Secret": ("digest",),
    "PersistentVolumeClaim": ("volume",),
    "PersistentVolume": ("claim",),
}


def specified(kind: str, state: State) -> dict[str, Any] | None:
    """Return the part of a state that someone decided on, not that the cluster reports; None for other
    kinds."""
    if kind not in _SPECIFIED:
        return None
    return {field: state[field] for field in _SPECIFIED[kind] if field in state}


def signs(kind: str, state: State, known: frozenset[str] = frozenset()) -> set[str]:
    """Name what is wrong with an object.

    Parameters
    ----------
    known
        Fields that the object had when it was healthy: Kubernetes leaves a count out when it is zero, so
        that a missing one means zero there and nothing anywhere else.
    """
    reader = _READERS.get(kind)
    return reader(state, known) if reader else set()


def restarts(state: State) -> int:
    """Restarts of all containers of a pod."""
    return sum(_number(container.get("restartCount")) or 0 for container in _containers(state))


def _pod(state: State, known: frozenset[str]) -> set[str]:
    found = set()
    phase = state.get("phase")
    if phase in ("Pending", "Failed", "Unknown"):
        found.add(f"pod {phase}")
    elif phase != "Succeeded" and state.get("ready") in (False, "False"):
        found.add("pod not ready")
    for container in _containers(state):
        reason = container.get("reason")
        if reason in _BAD_WAITING:
            found.add(str(reason))
        if container.get("state") == "terminated" and container.get("exitCode") not in (0, None):
            found.add("container ended with an error")
    return found


def _deployment(state: State, known: frozenset[str]) -> set[str]:
    wanted = _count(state, "replicas", known)
    if wanted is None:
        return set()
    if wanted == 0:
        return {"scaled to zero"}
    have = [_count(state, field, known) for field in ("readyReplicas", "availableReplicas")]
    return {"replicas missing"} if any(count is not None and count < wanted for count in have) else set()


def _endpoints(state: State, known: frozenset[str]) -> set[str]:
    return {"no endpoints"} if _count(state, "ready", known) == 0 else set()


def _claim(state: State, known: frozenset[str]) -> set[str]:
    phase = state.get("phase")
    return {f"claim {phase}"} if phase in ("Pending", "Lost") else set()


def _volume(state: State, known: frozenset[str]) -> set[str]:
    phase = state.get("phase")
    return {f"volume {phase}"} if phase in ("Released", "Failed") else set()


_READERS = {
    "Pod": _pod,
    "Deployment": _deployment,
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
}


def _containers(state: State) -> list[Mapping[str, Any]]:
    containers = state.get("containers")
    return [item for item in containers if isinstance(item, dict)] if isinstance(containers, list) else []


def _count(state: State, field: str, known: frozenset[str]) -> int | None:
    found = _number(state.get(field))
    return 0 if found is None and field in known else found


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
