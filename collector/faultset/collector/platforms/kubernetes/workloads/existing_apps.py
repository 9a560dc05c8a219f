"""Applications that somebody else has deployed: their objects, and whether they can be used now."""

from __future__ import annotations

from collections.abc import Iterator

from faultset.collector.platforms.kubernetes.api.client import Api, NotFound, path_of
from faultset.collector.platforms.kubernetes.api.namespaces import APP_NAMESPACE, is_abandoned, ours
from faultset.collector.platforms.kubernetes.api.objects import Objects
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.core.errors import PlatformError


def objects_of(api: Api, app: AppSpec, namespace: str) -> Objects:
    """Return the objects of an application in its namespace, under the names of its services."""
    names = {(kind, service.name): name for service in app.services.values() for kind, name in service.objects.items()}
    custom = app.operator.resource if app.operator else None
    return Objects(api, namespace, own_volumes=app.deployed is None, names=names, custom=custom)


def _workloads(app: AppSpec) -> Iterator[tuple[str, str, ServiceSpec]]:
    for name, service in app.services.items():
        yield "StatefulSet" if service.stateful else "Deployment", name, service


def check_deployed(objects: Objects, app: AppSpec) -> None:
    """Refuse a namespace that is missing, lacks services of the app file, or is used by another campaign.

    Raises
    ------
    PlatformError
        Says what is missing or who is in the way.
    """
    namespace = objects.namespace
    try:
        objects.api.get(path_of("Namespace", "", namespace))
    except NotFound:
        raise PlatformError(
            f"app {app.name} is expected in namespace {namespace}, which does not exist; deploy it there, or correct "
            "the namespace in the app file"
        ) from None
    wanted = {(kind, service.objects.get(kind, name)) for kind, name, service in _workloads(app)}
    if app.operator is not None:
        wanted.add((app.operator.resource.kind, app.operator.resource.name))
    found = {(kind, one["metadata"]["name"]) for kind in {kind for kind, _ in wanted} for one in objects.list(kind)}
    if wanted - found:
        missing = ", ".join(f"{kind} {name}" for kind, name in sorted(wanted - found)[:4])
        raise PlatformError(
            f"namespace {namespace} has no {missing}, which the app file of {app.name} names; correct the file or "
            "deploy what is missing"
        )
    for other in ours(objects.api):
        labels = other["metadata"]["labels"]
        if labels.get(APP_NAMESPACE) == namespace and not is_abandoned(other):
            raise PlatformError(
                f"namespace {namespace} is used by another episode at this moment; wait for its end, or run "
                "'faultset recover --platform kubernetes' if its collector is dead"
            )
