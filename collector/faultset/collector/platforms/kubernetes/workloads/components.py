"""What a custom resource asks for on a shared cluster: small requests, room for a few pods more, and volumes."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.client import Api
from faultset.collector.platforms.kubernetes.api.kinds import path_of
from faultset.collector.platforms.observation.quantities import quantity
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
