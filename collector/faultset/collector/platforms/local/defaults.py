"""The fields that an API server fills in when a manifest leaves them out, and Kubernetes quantities."""

from __future__ import annotations

import re
from typing import Any

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


def with_defaults(made: dict[str, Any]) -> dict[str, Any]:
    """Fill in an object's defaults in place and return it."""
    spec = made.get("spec")
    if isinstance(spec, dict) and made["kind"] in _DEFAULTS:
        _DEFAULTS[made["kind"]](spec)
    return made


def _pod(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in spec.get("containers", []):
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def _deployment(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _pod(spec["template"].setdefault("spec", {}))


def _service(spec: dict[str, Any]) -> None:
    spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])


def _volume(spec: dict[str, Any]) -> None:
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")


_DEFAULTS = {
    "Pod": _pod,
    "Deployment": _deployment,
    "Service": _service,
    "PersistentVolume": _volume,
}
