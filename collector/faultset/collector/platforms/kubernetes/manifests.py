"""The images that a cluster's nodes must have, or be able to pull."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.collector.agent.protocol import VOLUME_ROOT
from faultset.collector.platforms.kubernetes.client import Api, path_of
from faultset.collector.platforms.kubernetes.images import REPOSITORY, app_image, pause_image
from faultset.collector.platforms.kubernetes.namespaces import APP_NAMESPACE, MANAGED
from faultset.collector.platforms.objects import Object, container_statuses, is_ready, quantity
from faultset.collector.spec.app import AppSpec, ServiceSpec

USER_ID = 1000
LARGEST_REQUESTS = {"cpu": "50m", "memory": "64Mi"}
"""What the scheduler sets aside for a pod of a component at most; limits are those of the application."""
ROOM = 3
"""How many pods more than it has find room in a component without volumes."""
VOLUMES_PER_CLAIM = 2
"""Volumes for each claim where the cluster makes none: one that was released is not bound again."""
AS_ORDINARY_USER = {"runAsUser": USER_ID, "runAsGroup": USER_ID, "runAsNonRoot": True}
NAMESPACE_VARIABLE = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
_EVERY_NODE = "kubernetes.io/os"
"""Label with the same value on all nodes that programs of ours can run on."""
_MORE_THAN_THERE_ARE = 100


def lacks_storage_class(api: Api, app: AppSpec) -> bool:
    """Say whether components have volumes that the cluster does not make by itself, without a default storage class."""
    if app.deployed is not None or not any(_needs_volumes(app.services[name]) for name in app.components):
        return False
    classes = api.get(path_of("StorageClass", ""))["items"]
    return not any((one["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true" for one in classes)


def component_volumes(app: AppSpec) -> list[Object]:
    """Return volumes for the claims of the components' pods, under the names of an application's manifests."""
    return [
        _volume(app, app.services[name], number)
        for name in app.components
        if _needs_volumes(app.services[name])
        for number in range(VOLUMES_PER_CLAIM * app.services[name].replicas)
    ]


def place_components(resource: Object, app: AppSpec, namespace: str, *, own_volumes: bool) -> None:
    """Fit the custom resource of an application into a namespace of a shared cluster.

    The pods of a component without volumes are spread over all nodes as one place, which takes a few more than there
    are: so the one that finds no room stays pending without filling the nodes for everybody else.

    Parameters
    ----------
    own_volumes
        Whether the components' claims are bound to `component_volumes`, because the cluster makes no volumes.
    """
    for name in app.components:
        service, wanted = app.services[name], resource["spec"][name]
        requests = wanted["requests"]
        for key, most in LARGEST_REQUESTS.items():
            requests[key] = min(requests[key], most, key=quantity)
        wanted["podSecurityContext"] = {**AS_ORDINARY_USER, **wanted.get("podSecurityContext", {})}
        wanted["env"] = [*wanted.get("env", ()), NAMESPACE_VARIABLE]
        if service.storage is None:
            wanted["topologySpreadConstraints"] = [_room(app.label_key, service)]
        elif own_volumes and _needs_volumes(service):
            wanted["storageClassName"] = f"{namespace}-{_class_of(service)}"


def _needs_volumes(service: ServiceSpec) -> bool:
    return service.storage is not None and service.storage.storage_class is None


def _class_of(service: ServiceSpec) -> str:
    return f"{service.name}-storage"


def _volume(app: AppSpec, service: ServiceSpec, number: int) -> Object:
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
            "storageClassName": _class_of(service),
            "hostPath": {"path": f"/data/volumes/{name}", "type": "DirectoryOrCreate"},
        },
    }


def _room(label_key: str, service: ServiceSpec) -> dict[str, Any]:
    return {
        "maxSkew": service.replicas + ROOM,
        "minDomains": _MORE_THAN_THERE_ARE,
        "topologyKey": _EVERY_NODE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {label_key: service.name}},
    }


WORKING_FOLDER = "/tmp"
"""Writable for every user."""


def placed(
    objects: Iterable[Mapping[str, Any]], app: AppSpec, namespace: str, *, repository: str, own_volumes: bool = False
) -> list[Object]:
    """Return the objects with what a cluster needs beyond the embedded platform.

    Volumes lie in a folder of the namespace's own on the node and carry our label, since they belong to no namespace;
    images come from the user's repository; programs run as an ordinary user, except databases, which own the folder
    that the kubelet makes for them. The definition of a custom resource is left out: episodes share it.

    Parameters
    ----------
    own_volumes
        Whether the volumes of an operator's components are ours; see `place_components`.
    """
    made = []
    custom = app.operator.resource.kind if app.operator is not None else None
    for wanted in objects:
        if wanted["kind"] == "CustomResourceDefinition":
            continue
        found = with_images_of(wanted, repository)
        if found["kind"] == "PersistentVolume":
            labels = found["metadata"].setdefault("labels", {})
            labels.update({**MANAGED, APP_NAMESPACE: namespace})
            found["spec"]["hostPath"]["path"] = f"{VOLUME_ROOT}/{namespace}/{found['metadata']['name']}"
        elif found["kind"] == "Deployment":
            _place_pods(found, app)
        elif found["kind"] == "RoleBinding":
            found["subjects"] = [{**subject, "namespace": namespace} for subject in found["subjects"]]
        elif found["kind"] == custom:
            place_components(found, app, namespace, own_volumes=own_volumes)
        made.append(found)
    return made


def _place_pods(deployment: Object, app: AppSpec) -> None:
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


def with_images_of(found: Any, repository: str) -> Any:
    """Return a copy of an object, or of a change of one, with the images of ours as the nodes find them.

    >>> with_images_of({"containers": [{"image": "faultset/app:1.0.0"}]}, "registry/app")
    {'containers': [{'image': 'registry/app:1.0.0'}]}
    """
    if isinstance(found, Mapping):
        return {
            key: with_repository(value, repository) if key == "image" else with_images_of(value, repository)
            for key, value in found.items()
        }
    return [with_images_of(one, repository) for one in found] if isinstance(found, list) else found


def with_repository(image: str, repository: str) -> str:
    """Return an image of ours under the user's repository: `faultset/app:1.0.0` becomes `REPOSITORY:1.0.0`."""
    name, _, tag = image.rpartition(":")
    if name == REPOSITORY:
        return app_image(tag, repository)
    return pause_image(repository) if image == pause_image() else image


_NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"})


def images_missing(pods: Iterable[Object]) -> tuple[str, ...]:
    """Return the images that nodes cannot get."""
    missing = {
        status["image"]
        for pod in pods
        for status in container_statuses(pod)
        if (status.get("state", {}).get("waiting") or {}).get("reason") in _NO_IMAGE
    }
    return tuple(sorted(missing))


def unready(pods: Iterable[Object]) -> str:
    """Return one sentence about the pods that are not ready, with the cluster's reasons."""
    said = [_describe(pod) for pod in pods if not is_ready(pod)]
    return "; ".join(said[:5]) + (f"; {len(said) - 5} more" if len(said) > 5 else "") if said else "all pods are ready"


def _describe(pod: Object) -> str:
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
    return f"pod {name} is {status.get('phase', 'Pending')}: {', '.join(w for w in words if w) or 'no reason given'}"
