"""The fields that an API server fills in when a manifest leaves them out."""

from __future__ import annotations

import base64
from typing import Any


def with_defaults(made: dict[str, Any]) -> dict[str, Any]:
    """Fill in an object's defaults in place and return it."""
    if made["kind"] == "Secret":
        _secret(made)
    spec = made.get("spec")
    if isinstance(spec, dict) and made["kind"] in _DEFAULTS:
        _DEFAULTS[made["kind"]](spec)
    return made


def _secret(made: dict[str, Any]) -> None:
    """Move the texts that a client may give in place of the encoded values to where they are kept."""
    texts = made.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    if encoded:
        made["data"] = {**(made.get("data") or {}), **encoded}


def _pod(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", [])):
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


def _stateful_set(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
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
    "StatefulSet": _stateful_set,
    "Service": _service,
    "PersistentVolume": _volume,
}
