"""An application's ordinary manifests, made fit for a namespace of a shared cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.collector.agent.protocol import VOLUME_ROOT
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.namespaces import APP_NAMESPACE, MANAGED
from faultset.collector.platforms.kubernetes.workloads.components import (
    AS_ORDINARY_USER,
    NAMESPACE_VARIABLE,
    place_components,
)
from faultset.collector.platforms.kubernetes.workloads.images import REPOSITORY, app_image, pause_image
from faultset.collector.spec.app import AppSpec

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
