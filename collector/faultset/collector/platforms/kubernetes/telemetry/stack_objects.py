"""A small Prometheus and a small Jaeger for clusters that have none, in a namespace of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import yaml

from faultset.collector.platforms.kubernetes.client import APPLY_PATCH, Api, NotFound
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.core.errors import PlatformError

NAMESPACE = "faultset-telemetry"
PART = "faultset.dev/telemetry"
"""Label of everything that is made here; its value is the namespace that it belongs to."""

PARTS = ("kube-state-metrics", "jaeger", "prometheus")

_CORE, _APPS, _RBAC = "/api/v1", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1"
_PLACES = {
    "Namespace": (_CORE, "namespaces"),
    "ServiceAccount": (_CORE, "serviceaccounts"),
    "ConfigMap": (_CORE, "configmaps"),
    "Service": (_CORE, "services"),
    "Deployment": (_APPS, "deployments"),
    "ClusterRole": (_RBAC, "clusterroles"),
    "ClusterRoleBinding": (_RBAC, "clusterrolebindings"),
}
_CLUSTER_WIDE = ("ClusterRoleBinding", "ClusterRole")
_READY_TIMEOUT_S, _REMOVAL_TIMEOUT_S, _PAUSE_S = 180.0, 120.0, 0.5


@dataclass(frozen=True, kw_only=True)
class StackImages:
    """Images other than the public ones, for clusters that cannot pull those.

    Attributes
    ----------
    images
        By part: prometheus, jaeger, kube-state-metrics.
    commands
        The program to start in an image whose own entry point is another one.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)


def stack_objects(namespace: str, images: StackImages, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of the stack as they are applied, the namespace first."""
    labels = {**MANAGED, PART: namespace}
    made: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    ]
    for part in parts:
        for found in _manifest(part):
            metadata = found["metadata"]
            metadata["labels"] = {**metadata.get("labels", {}), **labels}
            if found["kind"] in _CLUSTER_WIDE:
                if namespace != NAMESPACE:
                    metadata["name"] = metadata["name"].replace("faultset", namespace, 1)
                if found["kind"] == "ClusterRoleBinding":
                    found["roleRef"]["name"] = metadata["name"]
                    found["subjects"][0]["namespace"] = namespace
            else:
                metadata["namespace"] = namespace
            if found["kind"] == "Deployment":
                container = found["spec"]["template"]["spec"]["containers"][0]
                found["spec"]["template"]["metadata"]["labels"].update(labels)
                container["image"] = images.images.get(part, container["image"])
                if part in images.commands:
                    container["command"] = list(images.commands[part])
            made.append(found)
    return made


def install_telemetry(
    api: Api,
    *,
    namespace: str = NAMESPACE,
    images: StackImages | None = None,
    kube_state_metrics: bool = True,
    timeout_s: float = _READY_TIMEOUT_S,
) -> None:
    """Apply the stack and wait until it answers; applying it again brings it to the same state.

    Raises
    ------
    PlatformError
        The namespace is somebody else's, or a part does not start; says why.
    """
    found = _find(api, _path("Namespace", namespace))
    if found is not None and (found["metadata"].get("labels") or {}).get(PART) != namespace:
        raise PlatformError(f"namespace {namespace} exists and is not ours; telemetry is not installed into it")
    parts = [part for part in PARTS if kube_state_metrics or part != "kube-state-metrics"]
    for wanted in stack_objects(namespace, images or StackImages(), parts):
        path = _path(wanted["kind"], wanted["metadata"].get("namespace", ""), wanted["metadata"]["name"])
        api.call(
            "PATCH", path, query={"fieldManager": "faultset", "force": "true"}, body=wanted, content_type=APPLY_PATCH
        )
    deadline = time.monotonic() + timeout_s
    for part in parts:
        while not _is_ready(api, namespace, part):
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"{part} in namespace {namespace} is not ready after {timeout_s:g} s: {_why(api, namespace, part)}"
                )
            time.sleep(_PAUSE_S)


def remove_telemetry(api: Api, *, namespace: str = NAMESPACE) -> list[str]:
    """Remove what `install_telemetry` made, by its label and nothing else, and return what it was.

    Raises
    ------
    PlatformError
        The namespace is not ours, or does not end.
    """
    selector = ",".join(f"{name}={value}" for name, value in {**MANAGED, PART: namespace}.items())
    removed = []
    for kind in _CLUSTER_WIDE:
        for item in api.get(_path(kind), {"labelSelector": selector})["items"]:
            name = item["metadata"]["name"]
            _delete(api, _path(kind, "", name))
            removed.append(f"{kind} {name}")
    path = _path("Namespace", namespace)
    found = _find(api, path)
    if found is None:
        return removed
    if (found["metadata"].get("labels") or {}).get(PART) != namespace:
        raise PlatformError(f"namespace {namespace} is not ours; it stays")
    _delete(api, path)
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    while _find(api, path) is not None:
        if time.monotonic() > deadline:
            raise PlatformError(f"namespace {namespace} is still terminating after {_REMOVAL_TIMEOUT_S:g} s")
        time.sleep(_PAUSE_S)
    return [*removed, f"Namespace {namespace}"]


def _manifest(part: str) -> Iterator[dict[str, Any]]:
    text = (
        files("faultset.collector.platforms.kubernetes.telemetry")
        .joinpath("stack", f"{part}.yaml")
        .read_text(encoding="utf-8")
    )
    return yaml.safe_load_all(text)


def _path(kind: str, namespace: str = "", name: str = "") -> str:
    root, plural = _PLACES[kind]
    if kind == "Namespace":
        return f"{root}/{plural}/{name or namespace}"
    place = f"{root}/{plural}" if kind in _CLUSTER_WIDE else f"{root}/namespaces/{namespace}/{plural}"
    return f"{place}/{name}" if name else place


def _find(api: Api, path: str) -> dict[str, Any] | None:
    try:
        return api.get(path)
    except NotFound:
        return None


def _delete(api: Api, path: str) -> None:
    try:
        api.call("DELETE", path, body={"propagationPolicy": "Background"})
    except NotFound:
        return


def _is_ready(api: Api, namespace: str, part: str) -> bool:
    found = api.get(_path("Deployment", namespace, part))
    status = found.get("status", {})
    is_observed = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
    return (
        is_observed
        and status.get("updatedReplicas", 0) == status.get("readyReplicas", 0) == status.get("replicas") == 1
    )


def _why(api: Api, namespace: str, part: str) -> str:
    pods = api.get(f"{_CORE}/namespaces/{namespace}/pods", {"labelSelector": f"app={part}"})["items"]
    for pod in pods:
        for status in pod["status"].get("containerStatuses") or ():
            waiting = status["state"].get("waiting") or {}
            if waiting.get("reason") == "CrashLoopBackOff":
                return f"it ends again and again, at last with {_last_words(api, namespace, pod['metadata']['name'])!r}"
            if waiting.get("reason") not in (None, "ContainerCreating"):
                return f"{waiting['reason']} ({' '.join(waiting.get('message', '').split())[:200]})"
        for condition in pod["status"].get("conditions") or ():
            if condition["status"] == "False" and condition.get("message"):
                return condition["message"]
    return "it has no pod" if not pods else "it does not say why"


def _last_words(api: Api, namespace: str, pod: str) -> str:
    try:
        log = api.get_text(f"{_CORE}/namespaces/{namespace}/pods/{pod}/log", {"previous": True, "tailLines": 1})
    except PlatformError:
        return "no log"
    return log.decode(errors="replace").strip()[:300]
