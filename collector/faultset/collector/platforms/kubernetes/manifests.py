"""Adapt the manifests of an application to a shared cluster, and describe pods that are not ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.collector.agent.program import VOLUME_ROOT
from faultset.collector.platforms.kubernetes.client import Api, build_path
from faultset.collector.platforms.kubernetes.objects import APP_NAMESPACE, MANAGED
from faultset.collector.platforms.kubernetes.settings import REPOSITORY, app_image, pause_image
from faultset.collector.platforms.objects import container_statuses, is_ready
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, quantity

USER_ID = 1000
LARGEST_REQUESTS = {"cpu": "50m", "memory": "64Mi"}
"""Maximum resource requests of a component's pod; the limits are those of the application."""
SURPLUS_PODS = 3
"""Maximum number of scheduled pods beyond the replicas of a component without volumes."""
VOLUMES_PER_CLAIM = 2
"""Volumes per claim on clusters that do not provision volumes; a released volume cannot be bound again."""
AS_ORDINARY_USER = {"runAsUser": USER_ID, "runAsGroup": USER_ID, "runAsNonRoot": True}
NAMESPACE_VARIABLE = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_EVERY_NODE = "kubernetes.io/os"
"""Label with the same value on all nodes that can run our programs."""
_MORE_THAN_ALL_DOMAINS = 100


def lacks_storage_class(api: Api, app: AppSpec) -> bool:
    """Return whether components need volumes but the cluster has no default storage class."""
    if app.deployed is not None or not any(_needs_volumes(app.services[name]) for name in app.components):
        return False
    classes = api.get(build_path("StorageClass", ""))["items"]
    return not any((entry["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true" for entry in classes)


def component_volumes(app: AppSpec) -> list[Object]:
    """Return volumes for the claims of the components' pods, named as in the application's manifests."""
    return [
        _build_volume(app, app.services[name], number)
        for name in app.components
        if _needs_volumes(app.services[name])
        for number in range(VOLUMES_PER_CLAIM * app.services[name].replicas)
    ]


def adapt_components(resource: Object, app: AppSpec, namespace: str, *, own_volumes: bool) -> None:
    """Adapt the custom resource of an application to a namespace of a shared cluster.

    A spread constraint limits the pods of a component without volumes to a few more than its replicas. Surplus pods
    stay pending, so that they do not fill the nodes of a shared cluster.

    Parameters
    ----------
    own_volumes
        Whether the components use `component_volumes`, because the cluster does not provision volumes.
    """
    for name in app.components:
        service, component = app.services[name], resource["spec"][name]
        requests = component["requests"]
        for key, limit in LARGEST_REQUESTS.items():
            requests[key] = min(requests[key], limit, key=quantity)
        component["podSecurityContext"] = {**AS_ORDINARY_USER, **component.get("podSecurityContext", {})}
        component["env"] = [*component.get("env", ()), NAMESPACE_VARIABLE]
        if service.storage is None:
            component["topologySpreadConstraints"] = [_limit_pods(app.label_key, service)]
        elif own_volumes and _needs_volumes(service):
            component["storageClassName"] = f"{namespace}-{_storage_class(service)}"


def _needs_volumes(service: ServiceSpec) -> bool:
    return service.storage is not None and service.storage.storage_class is None


def _storage_class(service: ServiceSpec) -> str:
    return f"{service.name}-storage"


def _build_volume(app: AppSpec, service: ServiceSpec, number: int) -> Object:
    assert service.storage is not None
    name = f"{service.name}-{number}-pv"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {app.label_key: service.name}},
        "spec": {
            "capacity": {"storage": service.storage.size},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": _storage_class(service),
            "hostPath": {"path": f"/data/volumes/{name}", "type": "DirectoryOrCreate"},
        },
    }


def _limit_pods(label_key: str, service: ServiceSpec) -> dict[str, Any]:
    return {
        "maxSkew": service.replicas + SURPLUS_PODS,
        "minDomains": _MORE_THAN_ALL_DOMAINS,
        "topologyKey": _EVERY_NODE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {label_key: service.name}},
    }


WORKING_FOLDER = "/tmp"
"""Writable for every user."""


def adapt_manifests(
    objects: Iterable[Mapping[str, Any]], app: AppSpec, namespace: str, *, repository: str, own_volumes: bool = False
) -> list[Object]:
    """Return the objects adapted to a shared cluster.

    - Volumes, which have no namespace, get our label and a folder per namespace on the node.
    - Images come from the user's repository.
    - Programs run as an ordinary user. Databases do not, because the kubelet creates their folders as root.
    - The definition of a custom resource is omitted, because episodes share it.

    Parameters
    ----------
    own_volumes
        See `adapt_components`.
    """
    adapted = []
    custom = app.operator.resource.kind if app.operator is not None else None
    for manifest in objects:
        if manifest["kind"] == "CustomResourceDefinition":
            continue
        resource = replace_images(manifest, repository)
        if resource["kind"] == "PersistentVolume":
            labels = resource["metadata"].setdefault("labels", {})
            labels.update({**MANAGED, APP_NAMESPACE: namespace})
            resource["spec"]["hostPath"]["path"] = f"{VOLUME_ROOT}/{namespace}/{resource['metadata']['name']}"
        elif resource["kind"] == "Deployment":
            _adapt_pods(resource, app)
        elif resource["kind"] == "RoleBinding":
            resource["subjects"] = [{**subject, "namespace": namespace} for subject in resource["subjects"]]
        elif resource["kind"] == custom:
            adapt_components(resource, app, namespace, own_volumes=own_volumes)
        adapted.append(resource)
    return adapted


def _adapt_pods(deployment: Object, app: AppSpec) -> None:
    spec = deployment["spec"]["template"]["spec"]
    service = app.services[deployment["metadata"]["name"]]
    if not service.claim:
        spec["securityContext"] = dict(AS_ORDINARY_USER)
    spec["automountServiceAccountToken"] = "serviceAccountName" in spec
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["workingDir"] = WORKING_FOLDER
        variables = container.setdefault("env", [])
        if NAMESPACE_VARIABLE not in variables:
            variables.append(NAMESPACE_VARIABLE)


def replace_images(value: Any, repository: str) -> Any:
    """Return a copy of an object or a patch with our images from the user's repository.

    >>> replace_images({"containers": [{"image": "faultset/app:1.0.0"}]}, "registry/app")
    {'containers': [{'image': 'registry/app:1.0.0'}]}
    """
    if isinstance(value, Mapping):
        return {
            key: resolve_image(item, repository) if key == "image" else replace_images(item, repository)
            for key, item in value.items()
        }
    return [replace_images(item, repository) for item in value] if isinstance(value, list) else value


def resolve_image(image: str, repository: str) -> str:
    """Return the image in the user's repository: `faultset/app:1.0.0` becomes `REPOSITORY:1.0.0`."""
    name, _, tag = image.rpartition(":")
    if name == REPOSITORY:
        return app_image(tag, repository)
    return pause_image(repository) if image == pause_image() else image


_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


def find_missing_images(pods: Iterable[Object]) -> tuple[str, ...]:
    """Return the images that nodes cannot pull."""
    missing = {
        status["image"]
        for pod in pods
        for status in container_statuses(pod)
        if (status.get("state", {}).get("waiting") or {}).get("reason") in _NO_IMAGE
    }
    return tuple(sorted(missing))


def describe_unready(pods: Iterable[Object]) -> str:
    """Return a sentence about the pods that are not ready, with the cluster's reasons."""
    reasons = [describe_pod(pod) for pod in pods if not is_ready(pod)]
    if not reasons:
        return "all pods are ready"
    return "; ".join(reasons[:5]) + (f"; {len(reasons) - 5} more" if len(reasons) > 5 else "")


def describe_pod(pod: Object) -> str:
    """Return a pod's phase with the reasons of its containers or conditions."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    words = []
    for container in container_statuses(pod):
        waiting = container.get("state", {}).get("waiting") or {}
        last = container.get("lastState", {}).get("terminated") or {}
        if waiting:
            words.append(f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip())
        if last:
            words.append(f"last exit {last.get('exitCode')} ({last.get('reason')})")
    if not words:
        words = [c.get("message") or "" for c in status.get("conditions") or [] if c.get("status") == "False"][:1]
    node = f" on {pod['spec']['nodeName']}" if pod.get("spec", {}).get("nodeName") else ""
    reasons = ", ".join(word for word in words if word) or "no reason given"
    return f"pod {name}{node} is {status.get('phase', 'Pending')}: {reasons}"
