"""The journaled objects of an application on a cluster, and the recovery of abandoned episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from faultset.collector.apps import load_app
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.journal import Journal, JournaledObjects
from faultset.collector.platforms.kubernetes.chaos_mesh.experiments import remove_all
from faultset.collector.platforms.kubernetes.client import Api, NotFound, build_path, run_in_pod
from faultset.collector.platforms.kubernetes.objects import (
    APP_NAMESPACE,
    DEFINITION,
    INJECTOR,
    Objects,
    is_abandoned,
    list_namespaces,
    remove_namespaces,
    remove_unused,
    remove_volumes,
)
from faultset.collector.spec.app import AppSpec, ServiceSpec
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object


def open_objects(api: Api, app: AppSpec, namespace: str) -> Objects:
    """Return the objects of an application, which callers refer to by the names of its services."""
    names = {(kind, service.name): name for service in app.services.values() for kind, name in service.objects.items()}
    custom = app.operator.resource if app.operator else None
    return Objects(api, namespace, own_volumes=app.deployed is None, names=names, custom=custom)


def _workloads(app: AppSpec) -> Iterator[tuple[str, str, ServiceSpec]]:
    for name, service in app.services.items():
        yield "StatefulSet" if service.stateful else "Deployment", name, service


def check_deployed(objects: Objects, app: AppSpec) -> None:
    """Raise PlatformError if a namespace is missing, incomplete, or used by another episode."""
    namespace = objects.namespace
    try:
        objects.api.get(build_path("Namespace", "", namespace))
    except NotFound:
        raise PlatformError(
            f"app {app.name} must run in namespace {namespace}, which does not exist; deploy it there, or correct the "
            "namespace in the app file"
        ) from None
    required = {(kind, service.objects.get(kind, name)) for kind, name, service in _workloads(app)}
    if app.operator is not None:
        required.add((app.operator.resource.kind, app.operator.resource.name))
    kinds = {kind for kind, _ in required}
    present = {(kind, item["metadata"]["name"]) for kind in kinds for item in objects.list(kind)}
    if required - present:
        missing = ", ".join(f"{kind} {name}" for kind, name in sorted(required - present)[:4])
        raise PlatformError(
            f"namespace {namespace} has no {missing}, which the app file of {app.name} names; correct the file or "
            "deploy the missing objects"
        )
    for other in list_namespaces(objects.api):
        labels = other["metadata"]["labels"]
        if labels.get(APP_NAMESPACE) == namespace and not is_abandoned(other):
            raise PlatformError(
                f"namespace {namespace} is in use by another episode; wait until it ends, or run "
                "'faultset recover --platform kubernetes' if its collector is dead"
            )


class AppObjects(JournaledObjects):
    """The journaled objects of an application in its namespace.

    Recovery uses this class without a platform. It need not lift impairments, because their leases have expired.
    """

    undo_timeout_s = 60.0
    undo_pause_s = 0.5

    def __init__(self, app: AppSpec, journal: Journal, api: Api, namespace: str):
        super().__init__(app, journal)
        self.api, self.namespace = api, namespace
        self._objects = open_objects(api, app, namespace)

    def find(self, kind: str, name: str) -> Object | None:
        return self._objects.find(kind, name)

    def get(self, kind: str, name: str) -> Object:
        return self._objects.get(kind, name)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return self._objects.list(kind, labels)

    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        container = self.get("Pod", pod)["spec"]["containers"][0]["name"]
        return run_in_pod(self.api, self.namespace, pod, container, argv)

    def _create(self, manifest: Mapping[str, Any]) -> bool:
        # for an existing Service the API server reports its address as taken, not a conflict
        if self.find(manifest["kind"], manifest["metadata"]["name"]) is not None:
            return False
        return self._objects.create(manifest)

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self._objects.patch(kind, name, change)

    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        self._objects.delete(kind, name, grace_period_s=grace_period_s)

    def _kill(self, pod: Object, container: str) -> None:
        raise PlatformError("containers can only be killed while their episode is running")

    def _impair(self, pod: Object, impairment: Impairment) -> None:
        raise PlatformError("networks can only be impaired while their episode is running")

    def _lift(self, pod: str) -> None:
        """Do nothing, because the lease has expired."""

    def _belongs_to_app(self, pod: Object) -> bool:
        return (pod["metadata"].get("labels") or {}).get(self.app.label_key) in self.app.services


INJECTOR_NOTE = "injector"
"""Journal note of an episode with an injector other than our agents."""


def recover_episode(api: Api, path: Path) -> None:
    """Remove the namespaces of an abandoned episode; if it did not deploy the application, undo its changes.

    Impairments by agents end with their leases. Chaos Mesh experiments are removed first, because their finalizers
    would block the removal of the namespace.
    """
    if not path.exists():
        return
    journal = Journal(path)
    try:
        notes = {record["verb"]: record["args"] for record in journal.records if record["state"] == "note"}
        if "namespaces" not in notes:
            return
        namespaces = notes["namespaces"]
        if INJECTOR_NOTE in notes:
            remove_all(api, namespaces["control"])
        if namespaces["created"]:
            remove_namespaces(api, (namespaces["app"], namespaces["control"]))
            remove_volumes(api, namespaces["app"])
            if namespaces.get("definition"):
                remove_unused(api, namespaces["definition"])
            return
        plan = notes["plan"]
        AppObjects(load_app(plan.get("app_file") or plan["app"]), journal, api, namespaces["app"]).undo()
        remove_namespaces(api, (namespaces["control"],))
    finally:
        journal.close()


def remove_orphans(api: Api) -> list[str]:
    """Remove abandoned namespaces with their volumes and definitions; return the names."""
    removed = []
    for namespace in list_namespaces(api):
        if is_abandoned(namespace):
            name = namespace["metadata"]["name"]
            if INJECTOR in namespace["metadata"]["labels"]:
                remove_all(api, name)
            remove_namespaces(api, (name,))
            labels = namespace["metadata"]["labels"]
            remove_volumes(api, labels.get(APP_NAMESPACE, name))
            removed.append(f"namespace {name}")
            if DEFINITION in labels and remove_unused(api, labels[DEFINITION]):
                removed.append(f"definition {labels[DEFINITION]}")
    return removed
