"""An application's ordinary manifests, made fit for a namespace of a shared cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from faultset.collector.agent.protocol import VOLUME_ROOT
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.namespaces import APP_NAMESPACE, MANAGED
from faultset.collector.platforms.kubernetes.workloads.images import REPOSITORY, app_image, pause_image
from faultset.collector.spec.app import AppSpec

USER_ID = 1000
WORKING_FOLDER = "/tmp"
"""Writable for every user."""


def placed(objects: Iterable[Mapping[str, Any]], app: AppSpec, namespace: str, *, repository: str) -> list[Object]:
    """Return the objects with what a cluster needs beyond the embedded platform.

    Volumes lie in a folder of the namespace's own on the node and carry our label, since they belong to no namespace;
    images come from the user's repository; programs run as an ordinary user, except databases, which own the folder
    that the kubelet makes for them.
    """
    made = []
    for wanted in objects:
        found = with_images_of(wanted, repository)
        if found["kind"] == "PersistentVolume":
            labels = found["metadata"].setdefault("labels", {})
            labels.update({**MANAGED, APP_NAMESPACE: namespace})
            found["spec"]["hostPath"]["path"] = f"{VOLUME_ROOT}/{namespace}/{found['metadata']['name']}"
        elif found["kind"] == "Deployment":
            _place_pods(found, app)
        made.append(found)
    return made


def _place_pods(deployment: Object, app: AppSpec) -> None:
    spec = deployment["spec"]["template"]["spec"]
    service = app.services[deployment["metadata"]["name"]]
    if not service.claim:
        spec["securityContext"] = {"runAsUser": USER_ID, "runAsGroup": USER_ID, "runAsNonRoot": True}
    spec["automountServiceAccountToken"] = False
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        container["workingDir"] = WORKING_FOLDER
        container.setdefault("env", []).append(
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
        )


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
