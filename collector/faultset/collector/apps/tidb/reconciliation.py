"""What the operator makes of a TidbCluster: one look at it, and the next step towards it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from faultset.collector.runtime.cluster_api import ApiRefusal, ResourceType
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.manifests import service_manifests, workload

Manifest = dict[str, Any]

SETS, SERVICES = ResourceType("apps/v1", "statefulsets"), ResourceType("v1", "services")
CLAIMS, EVENTS = ResourceType("v1", "persistentvolumeclaims"), ResourceType("v1", "events")
APPLIED = "pingcap.com/last-applied-configuration"
STORAGE_CLASS = "pingcap.com/storage-class"
_OF_PODS = {"tolerations": "tolerations", "affinity": "affinity", "podSecurityContext": "securityContext"}
"""Fields of a component that become fields of its pods."""

READY = "TiDB cluster is fully up and running"


class ClusterObjects(Protocol):
    """What the operator needs of an API server; see `ClusterApi`."""

    def get(self, of: ResourceType, name: str) -> Manifest | None:
        """Return an object."""
        ...

    def list(self, of: ResourceType, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the objects that carry the labels."""
        ...

    def create(self, of: ResourceType, wanted: Mapping[str, Any]) -> Manifest:
        """Create an object."""
        ...

    def replace(self, of: ResourceType, wanted: Mapping[str, Any]) -> Manifest:
        """Replace an object."""
        ...

    def patch(self, of: ResourceType, name: str, change: Mapping[str, Any]) -> Manifest:
        """Apply a merge patch to an object."""
        ...

    def set_status(self, of: ResourceType, found: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Replace the status of an object."""
        ...

    def delete(self, of: ResourceType, name: str) -> None:
        """Delete an object."""
        ...


class NotReady(Exception):
    """A step has to wait for something."""


class SyncFailure(Exception):
    """The API server refuses what a TidbCluster asks for.

    Attributes
    ----------
    reason
        Reason of the event that tells it.
    component
        Whose object is refused.
    """

    def __init__(self, reason: str, component: str, message: str):
        super().__init__(message)
        self.reason, self.component = reason, component


class Reconciler:
    """Brings StatefulSets and Services in line with the TidbCluster of an application.

    Parameters
    ----------
    app
        Whose services are the cluster's components.
    telemetry
        Base URL to which the components send spans.
    """

    def __init__(self, app: AppSpec, api: ClusterObjects, *, telemetry: str):
        assert app.operator is not None, "only an application with an operator is run by one"
        self._app, self._api, self._telemetry, self._operator = app, api, telemetry, app.operator
        resource = app.operator.resource
        self._clusters = ResourceType(resource.api_version, resource.plural)

    def cluster(self) -> Manifest | None:
        """Return the TidbCluster; None when there is none."""
        return self._api.get(self._clusters, self._operator.resource.name)

    def step(self, cluster: Manifest) -> None:
        """Take the next step of every component in turn; a failure keeps those after it back.

        Raises
        ------
        SyncFailure
            The API server refuses an object.
        NotReady
            Something has to be waited for.
        """
        before: list[str] = []
        for name in self._operator.components:
            self._sync(cluster, name, before)
            before.append(name)

    def report(self, cluster: Manifest, failure: SyncFailure | None) -> list[str]:
        """Write the status of the TidbCluster; return the components that are not as wanted.

        Parameters
        ----------
        failure
            What the API server refused in the last step.
        """
        status: Manifest = {"observedGeneration": cluster["metadata"].get("generation", 0)}
        behind = []
        for name in self._operator.components:
            found = self._api.get(SETS, name)
            status[name] = _component_status(found, cluster["spec"].get(name) or {})
            if status[name]["phase"] != "Normal":
                behind.append(name)
        status["conditions"] = [
            _condition("Ready", not behind, "Ready", "NotReady", READY, f"{', '.join(behind)} not as wanted"),
            _condition("Synced", failure is None, "Synced", getattr(failure, "reason", ""), "", str(failure or "")),
        ]
        if cluster.get("status") != status:
            self._api.set_status(self._clusters, cluster, status)
        return behind

    def replicas(self, cluster: Manifest) -> dict[str, int]:
        """Return how many pods of each component the TidbCluster asks for."""
        spec = cluster["spec"]
        return {name: (spec.get(name) or {}).get("replicas", 0) for name in self._operator.components}

    def tell(self, cluster: Manifest, kind: str, reason: str, message: str) -> None:
        """Record an event about the TidbCluster."""
        metadata = cluster["metadata"]
        about = {"apiVersion": self._clusters.api_version, "kind": cluster["kind"], "name": metadata["name"]}
        about |= {key: metadata[key] for key in ("namespace", "uid") if key in metadata}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": f"{metadata['name']}."}}
        self._api.create(EVENTS, {**event, "involvedObject": about, "type": kind, "reason": reason, "message": message})

    def _sync(self, cluster: Manifest, name: str, before: list[str]) -> None:
        service = self._app.services[name]
        for front in service_manifests(self._app, service):
            if self._api.get(SERVICES, front["metadata"]["name"]) is None:
                self._api.create(SERVICES, {**front, "metadata": {**front["metadata"], **_owned(cluster)}})
        wanted = stateful_set(self._app, cluster, name, self._telemetry)
        current = self._api.get(SETS, name)
        if current is not None and _storage_class(current) != _storage_class(wanted):
            self._api.delete(SETS, name)
            self.tell(
                cluster, "Normal", "ReplaceVolumes", f"volumes of {name} are replaced: StatefulSet {name} deleted"
            )
            raise NotReady(f"the volumes of {name} are replaced")
        if current is None:
            self._create(cluster, name, wanted, before)
        elif current["metadata"].get("annotations", {}).get(APPLIED) != wanted["metadata"]["annotations"][APPLIED]:
            self._update(name, current, wanted)

    def _create(self, cluster: Manifest, name: str, wanted: Manifest, before: list[str]) -> None:
        labels = wanted["spec"]["selector"]["matchLabels"]
        stale = [
            claim
            for claim in self._api.list(CLAIMS, labels)
            if claim["metadata"].get("annotations", {}).get(STORAGE_CLASS) != _storage_class(wanted)
        ]
        for claim in stale:
            if not claim["metadata"].get("deletionTimestamp"):
                self._api.delete(CLAIMS, claim["metadata"]["name"])
        if stale:
            raise NotReady(f"{len(stale)} claims of {name} are still there")
        for other in before:
            found = self._api.get(SETS, other)
            replicas = found["spec"]["replicas"] if found else 1
            if found is None or 2 * (found.get("status") or {}).get("readyReplicas", 0) <= replicas:
                raise NotReady(f"{name} waits for {other}")
        self._guarded("Create", name, lambda: self._api.create(SETS, wanted))
        self.tell(cluster, "Normal", "SuccessfulCreate", f"create StatefulSet {name} successful")

    def _update(self, name: str, current: Manifest, wanted: Manifest) -> None:
        """Update a StatefulSet, its size before its template."""
        size = wanted["spec"]["replicas"]
        if current["spec"]["replicas"] != size:
            self._guarded("Update", name, lambda: self._api.patch(SETS, name, {"spec": {"replicas": size}}))
        self._guarded("Update", name, lambda: self._api.replace(SETS, wanted))

    def _guarded(self, verb: str, name: str, act: Any) -> None:
        try:
            act()
        except ApiRefusal as error:
            if error.status != 422:
                raise
            message = f"{verb.lower()} StatefulSet {name} failed error: {error}"
            raise SyncFailure(f"Failed{verb}{_spelled(name)}STS", name, message) from None


def stateful_set(app: AppSpec, cluster: Mapping[str, Any], name: str, telemetry: str) -> Manifest:
    """Return the StatefulSet of a component as a TidbCluster asks for it."""
    wanted: Mapping[str, Any] = cluster["spec"].get(name) or {}
    made = workload(app, app.services[name], telemetry)
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    spec["replicas"] = wanted.get("replicas", spec["replicas"])
    # whatever else is asked for, the operator updates pods by itself
    spec["updateStrategy"] = (
        {"type": "OnDelete"} if _strategy(cluster, wanted) == "OnDelete" else {"type": "RollingUpdate"}
    )
    spec["template"]["metadata"]["annotations"] |= wanted.get("annotations") or {}
    for source, field in _OF_PODS.items():
        if wanted.get(source):
            pod[field] = wanted[source]
    (container,) = pod["containers"]
    container["image"] = wanted.get("image", container["image"])
    for kind in ("requests", "limits"):
        sizes = {key: value for key, value in (wanted.get(kind) or {}).items() if key != "storage"}
        container["resources"][kind] = {**container["resources"][kind], **sizes}
    for claim in spec.get("volumeClaimTemplates", []):
        storage_class = wanted.get("storageClassName")
        claim["metadata"]["annotations"] = {STORAGE_CLASS: storage_class or ""}
        claim["spec"].pop("storageClassName", None)
        if storage_class:
            claim["spec"]["storageClassName"] = storage_class
        size = (wanted.get("requests") or {}).get("storage")
        if size:
            claim["spec"]["resources"] = {"requests": {"storage": size}}
    applied = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    made["metadata"] = {**made["metadata"], **_owned(cluster), "annotations": {APPLIED: applied}}
    return made


def _strategy(cluster: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    return wanted.get("statefulSetUpdateStrategy") or cluster["spec"].get("statefulSetUpdateStrategy")


def _storage_class(found: Mapping[str, Any]) -> str | None:
    for claim in found["spec"].get("volumeClaimTemplates") or ():
        return (claim["metadata"].get("annotations") or {}).get(STORAGE_CLASS, "")
    return None


def _owned(cluster: Mapping[str, Any]) -> Manifest:
    metadata = cluster["metadata"]
    owner = {"apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": metadata["name"]}
    owner |= {"uid": metadata.get("uid", ""), "controller": True, "blockOwnerDeletion": True}
    return {"ownerReferences": [owner]}


def _component_status(found: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Manifest:
    if found is None:
        return {"phase": "Creating"}
    state = found.get("status") or {}
    size = found["spec"]["replicas"]
    is_seen = state.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    if size != wanted.get("replicas", size) or state.get("replicas", 0) != size:
        phase = "Scale"
    elif not is_seen or state.get("updatedReplicas", 0) < size:
        phase = "Upgrade"
    else:
        phase = "Normal" if state.get("readyReplicas", 0) >= size else "Unhealthy"
    kept = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "currentRevision", "updateRevision")
    return {
        "phase": phase,
        "image": found["spec"]["template"]["spec"]["containers"][0]["image"],
        "statefulSet": {key: state[key] for key in kept if key in state},
    }


def _condition(kind: str, holds: bool, reason: str, other: str, message: str, problem: str) -> Manifest:
    made = {"type": kind, "status": "True" if holds else "False", "reason": reason if holds else other}
    return {**made, "message": message if holds else problem}


def _spelled(component: str) -> str:
    return {"pd": "PD", "tikv": "TiKV", "tidb": "TiDB"}.get(component, component)
