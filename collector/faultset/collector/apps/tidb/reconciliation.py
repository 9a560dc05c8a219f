"""One step of the operator's reconciliation of a TidbCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from faultset.collector.apps.tidb.stateful_sets import (
    APPLIED,
    STORAGE_CLASS,
    Manifest,
    build_owner_metadata,
    component_status,
    get_storage_class,
    stateful_set,
)
from faultset.collector.runtime.cluster_api import ApiRefusal, ResourceType
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import service_manifests

SETS, SERVICES = ResourceType("apps/v1", "statefulsets"), ResourceType("v1", "services")
CLAIMS, EVENTS = ResourceType("v1", "persistentvolumeclaims"), ResourceType("v1", "events")
STATUS_ATTEMPTS = 4
READY = "TiDB cluster is fully up and running"


class ClusterObjects(Protocol):
    """The operator's view of the API server; see `ClusterApi`."""

    def get(self, resource: ResourceType, name: str) -> Manifest | None:
        """Return an object."""
        ...

    def list(self, resource: ResourceType, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the objects with the labels."""
        ...

    def create(self, resource: ResourceType, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object."""
        ...

    def replace(self, resource: ResourceType, manifest: Mapping[str, Any]) -> Manifest:
        """Replace an object."""
        ...

    def patch(self, resource: ResourceType, name: str, change: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch to an object."""
        ...

    def set_status(self, resource: ResourceType, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Replace the status of an object."""
        ...

    def delete(self, resource: ResourceType, name: str) -> None:
        """Delete an object."""
        ...


class NotReady(Exception):
    """A step must wait for something."""


class SyncFailure(Exception):
    """The API server refused an object of a TidbCluster.

    Attributes
    ----------
    reason
        Reason of the event about the failure.
    component
        Component whose object was refused.
    """

    def __init__(self, reason: str, component: str, message: str):
        super().__init__(message)
        self.reason, self.component = reason, component


class Reconciler:
    """Brings StatefulSets and Services in line with the TidbCluster of an application.

    Parameters
    ----------
    app
        Application whose services are the cluster's components.
    telemetry
        Base URL to which the components send spans.
    """

    def __init__(self, app: AppSpec, api: ClusterObjects, *, telemetry: str):
        assert app.operator is not None, "a reconciler needs an application with an operator"
        self._app, self._api, self._telemetry, self._operator = app, api, telemetry, app.operator
        resource = app.operator.resource
        self._clusters = ResourceType(resource.api_version, resource.plural)

    def cluster(self) -> Manifest | None:
        """Return the TidbCluster, or None."""
        return self._api.get(self._clusters, self._operator.resource.name)

    def step(self, cluster: Manifest) -> None:
        """Take the next step of every component in turn; stop at the first failure.

        Raises
        ------
        SyncFailure
            The API server refuses an object.
        NotReady
            A step must wait for something.
        """
        before: list[str] = []
        for name in self._operator.components:
            self._sync(cluster, name, before)
            before.append(name)

    def report(self, cluster: Manifest, failure: SyncFailure | None) -> list[str]:
        """Write the status of the TidbCluster; return the components that do not match it.

        Parameters
        ----------
        failure
            The API server's refusal in the last step.
        """
        status: Manifest = {"observedGeneration": cluster["metadata"].get("generation", 0)}
        lagging = []
        for name in self._operator.components:
            current = self._api.get(SETS, name)
            status[name] = component_status(current, cluster["spec"].get(name) or {})
            if status[name]["phase"] != "Normal":
                lagging.append(name)
        status["conditions"] = [
            _build_condition(
                "Ready", not lagging, "Ready", "NotReady", READY, f"not in phase Normal: {', '.join(lagging)}"
            ),
            _build_condition(
                "Synced", failure is None, "Synced", getattr(failure, "reason", ""), "", str(failure or "")
            ),
        ]
        if cluster.get("status") != status:
            self._write_status(cluster, status)
        return lagging

    def _write_status(self, cluster: Manifest, status: Manifest) -> None:
        """Write the status; if the TidbCluster has changed since, retry with its newest version."""
        current: Manifest | None = cluster
        for attempts_left in reversed(range(STATUS_ATTEMPTS)):
            if current is None:
                return
            try:
                self._api.set_status(self._clusters, current, status)
                return
            except ApiRefusal as refusal:
                if refusal.status != 409 or not attempts_left:
                    raise
                current = self.cluster()

    def replicas(self, cluster: Manifest) -> dict[str, int]:
        """Return the number of pods that the TidbCluster specifies for each component."""
        spec = cluster["spec"]
        return {name: (spec.get(name) or {}).get("replicas", 0) for name in self._operator.components}

    def record_event(self, cluster: Manifest, kind: str, reason: str, message: str) -> None:
        """Record an event about the TidbCluster."""
        metadata = cluster["metadata"]
        reference = {"apiVersion": self._clusters.api_version, "kind": cluster["kind"], "name": metadata["name"]}
        reference |= {key: metadata[key] for key in ("namespace", "uid") if key in metadata}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": f"{metadata['name']}."}}
        self._api.create(
            EVENTS, {**event, "involvedObject": reference, "type": kind, "reason": reason, "message": message}
        )

    def _sync(self, cluster: Manifest, name: str, before: list[str]) -> None:
        service = self._app.services[name]
        for manifest in service_manifests(self._app, service):
            if self._api.get(SERVICES, manifest["metadata"]["name"]) is None:
                self._api.create(
                    SERVICES, {**manifest, "metadata": {**manifest["metadata"], **build_owner_metadata(cluster)}}
                )
        target = stateful_set(self._app, cluster, name, self._telemetry)
        current = self._api.get(SETS, name)
        if current is not None and get_storage_class(current) != get_storage_class(target):
            self._api.delete(SETS, name)
            self.record_event(
                cluster, "Normal", "ReplaceVolumes", f"volumes of {name} are being replaced: StatefulSet {name} deleted"
            )
            raise NotReady(f"the volumes of {name} are being replaced")
        if current is None:
            self._create(cluster, name, target, before)
        elif current["metadata"].get("annotations", {}).get(APPLIED) != target["metadata"]["annotations"][APPLIED]:
            self._update(name, current, target)

    def _create(self, cluster: Manifest, name: str, target: Manifest, before: list[str]) -> None:
        labels = target["spec"]["selector"]["matchLabels"]
        stale = [
            claim
            for claim in self._api.list(CLAIMS, labels)
            if claim["metadata"].get("annotations", {}).get(STORAGE_CLASS) != get_storage_class(target)
        ]
        for claim in stale:
            if not claim["metadata"].get("deletionTimestamp"):
                self._api.delete(CLAIMS, claim["metadata"]["name"])
        if stale:
            raise NotReady(f"waiting for the deletion of {len(stale)} claims of {name}")
        for other in before:
            predecessor = self._api.get(SETS, other)
            replicas = predecessor["spec"]["replicas"] if predecessor else 1
            if predecessor is None or 2 * (predecessor.get("status") or {}).get("readyReplicas", 0) <= replicas:
                raise NotReady(f"{name} waits for {other}")
        self._attempt("Create", name, lambda: self._api.create(SETS, target))
        self.record_event(cluster, "Normal", "SuccessfulCreate", f"create StatefulSet {name} successful")

    def _update(self, name: str, current: Manifest, target: Manifest) -> None:
        """Update a StatefulSet: first its size, then its template."""
        size = target["spec"]["replicas"]
        if current["spec"]["replicas"] != size:
            self._attempt("Update", name, lambda: self._api.patch(SETS, name, {"spec": {"replicas": size}}))
        self._attempt("Update", name, lambda: self._api.replace(SETS, target))

    def _attempt(self, verb: str, name: str, call: Any) -> None:
        try:
            call()
        except ApiRefusal as error:
            if error.status != 422:
                raise
            message = f"{verb.lower()} StatefulSet {name} failed error: {error}"
            raise SyncFailure(f"Failed{verb}{_format_name(name)}STS", name, message) from None


def _build_condition(kind: str, holds: bool, reason: str, other: str, message: str, problem: str) -> Manifest:
    condition = {"type": kind, "status": "True" if holds else "False", "reason": reason if holds else other}
    return {**condition, "message": message if holds else problem}


def _format_name(component: str) -> str:
    return {"pd": "PD", "tikv": "TiKV", "tidb": "TiDB"}.get(component, component)
