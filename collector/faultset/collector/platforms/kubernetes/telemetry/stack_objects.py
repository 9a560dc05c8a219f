"""Install a small Prometheus, Jaeger and kube-state-metrics in a separate namespace."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from faultset.collector.platforms.kubernetes.client import APPLY_PATCH, Api, build_path, label_selector
from faultset.collector.platforms.kubernetes.objects import MANAGED
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until

NAMESPACE = "faultset-telemetry"
PART_LABEL = "faultset.dev/telemetry"
"""Label of all objects of the stack; its value is the namespace of the stack."""

COMPONENTS = ("kube-state-metrics", "jaeger", "prometheus")

_CLUSTER_WIDE = ("ClusterRoleBinding", "ClusterRole")
_IN_BACKGROUND = {"propagationPolicy": "Background"}
_READY_TIMEOUT_S, _REMOVAL_TIMEOUT_S, _PAUSE_S = 180.0, 120.0, 0.5


@dataclass(frozen=True, kw_only=True)
class StackImages:
    """Images for clusters that cannot pull the public ones.

    Attributes
    ----------
    images
        Images by component: prometheus, jaeger, kube-state-metrics.
    commands
        Programs by component, for images with another entry point.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)


def stack_objects(namespace: str, images: StackImages) -> list[dict[str, Any]]:
    """Return the objects of the stack, the namespace first."""
    labels = {**MANAGED, PART_LABEL: namespace}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    ]
    for manifest in yaml.safe_load_all(Path(__file__).with_name("stack.yaml").read_text(encoding="utf-8")):
        metadata = manifest["metadata"]
        component = metadata["name"].removeprefix("faultset-")
        metadata["labels"] = {**metadata.get("labels", {}), **labels}
        if manifest["kind"] in _CLUSTER_WIDE:
            if namespace != NAMESPACE:
                metadata["name"] = metadata["name"].replace("faultset", namespace, 1)
            if manifest["kind"] == "ClusterRoleBinding":
                manifest["roleRef"]["name"] = metadata["name"]
                manifest["subjects"][0]["namespace"] = namespace
        else:
            metadata["namespace"] = namespace
        if manifest["kind"] == "Deployment":
            container = manifest["spec"]["template"]["spec"]["containers"][0]
            manifest["spec"]["template"]["metadata"]["labels"].update(labels)
            container["image"] = images.images.get(component, container["image"])
            if component in images.commands:
                container["command"] = list(images.commands[component])
        objects.append(manifest)
    return objects


def install_telemetry(
    api: Api, *, namespace: str = NAMESPACE, images: StackImages | None = None, timeout_s: float = _READY_TIMEOUT_S
) -> None:
    """Apply the stack and wait until it is ready; may be repeated.

    Raises
    ------
    PlatformError
        The namespace is not ours, or a component does not start; the message says why.
    """
    existing = api.find(build_path("Namespace", "", namespace))
    if existing is not None and (existing["metadata"].get("labels") or {}).get(PART_LABEL) != namespace:
        raise PlatformError(f"namespace {namespace} exists but was not created by faultset; rename or delete it")
    for manifest in stack_objects(namespace, images or StackImages()):
        path = build_path(manifest["kind"], namespace, manifest["metadata"]["name"])
        api.call(
            "PATCH", path, query={"fieldManager": "faultset", "force": "true"}, body=manifest, content_type=APPLY_PATCH
        )
    deadline = time.monotonic() + timeout_s
    for component in COMPONENTS:
        while not _is_ready(api, namespace, component):
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"{component} in namespace {namespace} is not ready after {timeout_s:g} s: "
                    f"{_find_reason(api, namespace, component)}"
                )
            time.sleep(_PAUSE_S)


def remove_telemetry(api: Api, *, namespace: str = NAMESPACE) -> list[str]:
    """Remove the objects that `install_telemetry` created, by their label; return their names.

    Raises
    ------
    PlatformError
        The namespace is not ours or is not removed in time.
    """
    selector = label_selector({**MANAGED, PART_LABEL: namespace})
    removed = []
    for kind in _CLUSTER_WIDE:
        for item in api.get(build_path(kind, ""), {"labelSelector": selector})["items"]:
            name = item["metadata"]["name"]
            api.delete(build_path(kind, "", name), _IN_BACKGROUND)
            removed.append(f"{kind} {name}")
    path = build_path("Namespace", "", namespace)
    existing = api.find(path)
    if existing is None:
        return removed
    if (existing["metadata"].get("labels") or {}).get(PART_LABEL) != namespace:
        raise PlatformError(f"namespace {namespace} was not created by faultset and is not removed")
    api.delete(path, _IN_BACKGROUND)
    if not poll_until(lambda: api.find(path) is None, timeout_s=_REMOVAL_TIMEOUT_S, pause_s=_PAUSE_S):
        raise PlatformError(f"namespace {namespace} is still terminating after {_REMOVAL_TIMEOUT_S:g} s")
    return [*removed, f"Namespace {namespace}"]


def _is_ready(api: Api, namespace: str, component: str) -> bool:
    deployment = api.get(build_path("Deployment", namespace, component))
    status = deployment.get("status", {})
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return (
        is_observed
        and status.get("updatedReplicas", 0) == status.get("readyReplicas", 0) == status.get("replicas") == 1
    )


def _find_reason(api: Api, namespace: str, component: str) -> str:
    pods = api.get(build_path("Pod", namespace), {"labelSelector": f"app={component}"})["items"]
    for pod in pods:
        for status in pod["status"].get("containerStatuses") or ():
            waiting = status["state"].get("waiting") or {}
            if waiting.get("reason") == "CrashLoopBackOff":
                return (
                    f"it is crash-looping; last log line: {_last_log_line(api, namespace, pod['metadata']['name'])!r}"
                )
            if waiting.get("reason") not in (None, "ContainerCreating"):
                return f"{waiting['reason']} ({' '.join(waiting.get('message', '').split())[:200]})"
        for condition in pod["status"].get("conditions") or ():
            if condition["status"] == "False" and condition.get("message"):
                return condition["message"]
    return "it has no pod" if not pods else "no reason given"


def _last_log_line(api: Api, namespace: str, pod: str) -> str:
    try:
        log = api.call("GET", f"{build_path('Pod', namespace, pod)}/log", query={"previous": True, "tailLines": 1})
    except PlatformError:
        return "no log"
    return log.decode(errors="replace").strip()[:300]
