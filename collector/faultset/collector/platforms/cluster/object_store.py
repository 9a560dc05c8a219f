"""An in-memory object store that imitates the Kubernetes API server for the kinds that applications use."""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any

from faultset.collector.platforms.objects import ObjectNotFound, deep_copy, merge
from faultset.core.errors import PlatformError
from faultset.core.times import rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, quantity


def with_defaults(resource: dict[str, Any]) -> dict[str, Any]:
    """Set an object's defaults in place and return it."""
    if resource["kind"] == "Secret":
        _encode_secret(resource)
    spec = resource.get("spec")
    if isinstance(spec, dict) and resource["kind"] in _DEFAULT_SETTERS:
        _DEFAULT_SETTERS[resource["kind"]](spec)
    return resource


def _encode_secret(secret: dict[str, Any]) -> None:
    """Move the strings of `stringData` into `data`, encoded."""
    texts = secret.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    if encoded:
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _default_pod(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", [])):
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def _default_deployment(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _default_pod(spec["template"].setdefault("spec", {}))


def _default_stateful_set(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    _default_pod(spec["template"].setdefault("spec", {}))


def _default_service(spec: dict[str, Any]) -> None:
    spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])


def _default_volume(spec: dict[str, Any]) -> None:
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")


_DEFAULT_SETTERS = {
    "Pod": _default_pod,
    "Deployment": _default_deployment,
    "StatefulSet": _default_stateful_set,
    "Service": _default_service,
    "PersistentVolume": _default_volume,
}


_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS = ("Equal", "Exists")
_LARGEST_ID = 2**31 - 1
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_MUTABLE_FIELDS = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit")
_MUTABLE_FIELDS += ("persistentVolumeClaimRetentionPolicy", "minReadySeconds")


class InvalidObject(PlatformError):
    """The API server rejects an object, with the message of Kubernetes."""


def check_object(resource: Object, before: Object | None = None) -> None:
    """Raise InvalidObject if an object is invalid.

    Parameters
    ----------
    before
        The object that `resource` replaces, if any.
    """
    errors = (
        list(_CHECKS[resource["kind"]](resource["spec"])) if resource["kind"] in _CHECKS and "spec" in resource else []
    )
    if resource["kind"] == "StatefulSet" and before is not None and _fixed_fields(resource) != _fixed_fields(before):
        allowed = ", ".join(f"'{field}'" for field in _MUTABLE_FIELDS[:-1])
        errors.append(
            f"spec: Forbidden: updates to statefulset spec for fields other than {allowed} and '{_MUTABLE_FIELDS[-1]}' "
            "are forbidden"
        )
    if errors:
        group = "." + resource["apiVersion"].partition("/")[0] if "/" in resource["apiVersion"] else ""
        message = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        raise InvalidObject(f'{resource["kind"]}{group} "{resource["metadata"]["name"]}" is invalid: {message}')


def _fixed_fields(stateful_set: Object) -> dict[str, Any]:
    return {key: value for key, value in stateful_set["spec"].items() if key not in _MUTABLE_FIELDS}


def _validate_pod(spec: dict[str, Any], path: str = "spec") -> Iterator[str]:
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        location = f"{path}.tolerations[{number}]"
        yield from _validate_choice(f"{location}.operator", toleration.get("operator", "Equal"), _TOLERATION_OPERATORS)
        yield from _validate_choice(f"{location}.effect", toleration.get("effect") or _TAINT_EFFECTS[0], _TAINT_EFFECTS)
    yield from _validate_ids(f"{path}.securityContext", spec.get("securityContext") or {})
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            yield from _validate_container(f"{path}.{field}[{number}]", container)


def _validate_container(path: str, container: dict[str, Any]) -> Iterator[str]:
    yield from _validate_ids(f"{path}.securityContext", container.get("securityContext") or {})
    resources = container.get("resources") or {}
    requests, limits = (resources.get(field) or {} for field in ("requests", "limits"))
    for resource in ("cpu", "memory"):
        request, limit = requests.get(resource), limits.get(resource)
        if request is not None and limit is not None and quantity(request) > quantity(limit):
            reason = f"must be less than or equal to {resource} limit of {limit}"
            yield f'{path}.resources.requests: Invalid value: "{request}": {reason}'


def _validate_ids(path: str, context: dict[str, Any]) -> Iterator[str]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if value is not None and not 0 <= value <= _LARGEST_ID:
            yield f"{path}.{field}: Invalid value: {value}: must be between 0 and {_LARGEST_ID}, inclusive"


def _validate_choice(path: str, value: str, supported: Iterable[str]) -> Iterator[str]:
    if value not in supported:
        choices = ", ".join(f'"{choice}"' for choice in supported)
        yield f'{path}: Unsupported value: "{value}": supported values: {choices}'


def _validate_workload(spec: dict[str, Any]) -> Iterator[str]:
    replicas = spec.get("replicas", 1)
    if replicas < 0:
        yield f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
    yield from _validate_pod(spec["template"].get("spec", {}), "spec.template.spec")


def _validate_stateful_set(spec: dict[str, Any]) -> Iterator[str]:
    yield from _validate_workload(spec)
    kind = spec.get("updateStrategy", {}).get("type", "RollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        yield f"spec.updateStrategy: Invalid value: \"{kind}\": must be 'RollingUpdate' or 'OnDelete'"


def _validate_claim(spec: dict[str, Any]) -> Iterator[str]:
    name = spec.get("storageClassName") or ""
    if name and not _SUBDOMAIN.fullmatch(name):
        yield f'spec.storageClassName: Invalid value: "{name}": {_SUBDOMAIN_RULE}'


_CHECKS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "Pod": _validate_pod,
    "Deployment": _validate_workload,
    "StatefulSet": _validate_stateful_set,
    "PersistentVolumeClaim": _validate_claim,
}


Listener = Callable[[str, str, Object | None], None]

PROTECTED = {"PersistentVolumeClaim": "kubernetes.io/pvc-protection", "PersistentVolume": "kubernetes.io/pv-protection"}

CLUSTER_WIDE = frozenset({"Node", "PersistentVolume", "StorageClass", "CustomResourceDefinition"})
"""Kinds whose objects have no namespace."""

_OWNED_BY_SERVER = ("uid", "creationTimestamp", "generation", "namespace", "resourceVersion")
_OWNED_BY_SERVER += ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT_BY_APPLY = ("ownerReferences", "finalizers")


class ObjectStore:
    """Objects by kind and name, with versions, owners, graceful deletion and listeners."""

    def __init__(self, *, clock: Callable[[], int], rng: random.Random, namespace: str = "default"):
        self.clock = clock
        self.namespace = namespace
        self.version = 0
        self._rng = rng
        self._objects: dict[str, dict[str, Object]] = {}
        self._owned: dict[tuple[str, str], dict[str, None]] = {}
        self._labelled: dict[tuple[str, str, str], dict[str, None]] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener(kind, name, object)` after every change; the object is None after deletion."""
        self._listeners.append(listener)

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound if it does not exist."""
        return deep_copy(self._require(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Return copies of the objects of a kind with the labels, oldest first."""
        return [deep_copy(resource) for resource in self.each(kind, labels)]

    def find(self, kind: str, name: str) -> Object | None:
        """Return the stored object itself, or None; callers must not change it."""
        return self._objects.get(kind, {}).get(name)

    def each(self, kind: str, labels: Mapping[str, str] | None = None) -> Iterator[Object]:
        """Yield the stored objects themselves, oldest first; callers must not change them."""
        objects = self._objects.get(kind, {})
        resources = list(objects.values())
        indexed = [(kind, key, value) for key, value in (labels or {}).items() if isinstance(value, str)]
        if indexed:
            shortest = min((self._labelled.get(label, {}) for label in indexed), key=len)
            resources = [objects[name] for name in list(shortest) if name in objects]
        for resource in resources:
            if not labels or selects(labels, resource):
                yield resource

    def all(self) -> Iterator[Object]:
        for objects in self._objects.values():
            yield from objects.values()

    def owned(self, kind: str, owner: Object) -> list[Object]:
        """Return the stored objects whose controller is `owner`, oldest first; callers must not change them."""
        names = self._owned.get((kind, owner["metadata"]["uid"]), ())
        return [self._objects[kind][name] for name in names]

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Add an object and return it.

        Raises
        ------
        InvalidObject
            The object is invalid.
        PlatformError
            An object of that name exists.
        """
        resource = with_defaults(deep_copy(dict(manifest)))
        kind, name = resource["kind"], resource["metadata"]["name"]
        if self.find(kind, name) is not None:
            raise PlatformError(f'{kind} "{name}" already exists')
        check_object(resource)
        metadata = resource["metadata"]
        metadata["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        metadata["creationTimestamp"] = rfc3339(self.clock())
        metadata["generation"] = 1
        if kind not in CLUSTER_WIDE:
            metadata["namespace"] = self.namespace
        if kind in PROTECTED:
            metadata["finalizers"] = [PROTECTED[kind]]
            resource["status"] = {"phase": "Pending"}
        self._put(resource)
        return resource

    def apply(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object, or replace an existing one except its status and server fields."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        current = self.find(kind, name)
        if current is None:
            return self.create({key: value for key, value in manifest.items() if key != "status"})
        resource = with_defaults(deep_copy(dict(manifest)))
        retained = {key: current["metadata"][key] for key in _KEPT_BY_APPLY if key in current["metadata"]}
        resource["metadata"] = {**retained, **resource["metadata"]}
        return self._replace(current, resource)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the stored object; raise InvalidObject if it is invalid."""
        current = self._require(kind, name)
        return self._replace(current, with_defaults(merge(current, change)))

    def set_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Replace the status of an object, if it exists and its status differs."""
        current = self.find(kind, name)
        if current is not None and current.get("status") != status:
            self._put({**current, "status": deep_copy(dict(status))})

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object.

        An object with finalizers is only marked for deletion, and so is a pod on a node unless its grace period is 0.
        """
        current = self._require(kind, name)
        metadata = current["metadata"]
        if kind == "Pod" and current["spec"].get("nodeName"):
            grace = current["spec"]["terminationGracePeriodSeconds"] if grace_period_s is None else grace_period_s
            if grace > 0:
                previous = metadata.get("deletionGracePeriodSeconds")
                if previous is None or grace < previous:
                    self._mark_deleted(current, grace)
                return
        elif metadata.get("finalizers"):
            if not metadata.get("deletionTimestamp"):
                self._mark_deleted(current, 0)
            return
        self.remove(kind, name)

    def remove(self, kind: str, name: str) -> None:
        """Remove an object, if it exists, and delete the objects that it owns."""
        removed = self._objects.get(kind, {}).pop(name, None)
        if removed is None:
            return
        self.version += 1
        self._index_owner(removed, None)
        self._index_labels(removed, None)
        for listener in self._listeners:
            listener(kind, name, None)
        for owned_kind in list(self._objects):
            for dependent in self.owned(owned_kind, removed):
                if not dependent["metadata"].get("deletionTimestamp"):
                    self.delete(owned_kind, dependent["metadata"]["name"])

    def _require(self, kind: str, name: str) -> Object:
        resource = self.find(kind, name)
        if resource is None:
            raise ObjectNotFound(f'{kind} "{name}" not found')
        return resource

    def _mark_deleted(self, current: Object, grace_s: float) -> None:
        metadata = {
            **current["metadata"],
            "deletionTimestamp": rfc3339(self.clock()),
            "deletionGracePeriodSeconds": grace_s,
        }
        self._put({**current, "metadata": metadata})

    def _replace(self, current: Object, changed: Object) -> Object:
        retained = {key: current["metadata"][key] for key in _OWNED_BY_SERVER if key in current["metadata"]}
        metadata = {**changed["metadata"], **retained}
        resource = {**changed, "metadata": metadata}
        if "status" in current:
            resource["status"] = current["status"]
        if resource == current:
            return current
        if resource.get("spec") != current.get("spec"):
            check_object(resource, current)
            metadata["generation"] = current["metadata"]["generation"] + 1
        self._put(resource)
        return resource

    def _put(self, resource: Object) -> None:
        self.version += 1
        resource["metadata"] = {**resource["metadata"], "resourceVersion": str(self.version)}
        kind, name = resource["kind"], resource["metadata"]["name"]
        before = self.find(kind, name)
        self._objects.setdefault(kind, {})[name] = resource
        self._index_owner(before, resource)
        self._index_labels(before, resource)
        for listener in self._listeners:
            listener(kind, name, resource)

    def _index_owner(self, before: Object | None, after: Object | None) -> None:
        """Update the index of owned objects after a change of one object."""
        uid_before = None if before is None else owner_uid(before)
        uid_after = None if after is None else owner_uid(after)
        if uid_before == uid_after:
            return
        kind, name = (after or before or {})["kind"], (after or before or {})["metadata"]["name"]
        if uid_before is not None:
            del self._owned[kind, uid_before][name]
        if uid_after is not None:
            self._owned.setdefault((kind, uid_after), {})[name] = None

    def _index_labels(self, before: Object | None, after: Object | None) -> None:
        """Update the index of labelled objects after a change of one object."""
        labels_before, labels_after = (_list_labels(resource) for resource in (before, after))
        if labels_before == labels_after:
            return
        kind, name = (after or before or {})["kind"], (after or before or {})["metadata"]["name"]
        for label in labels_before - labels_after:
            self._labelled.get((kind, *label), {}).pop(name, None)
        for label in labels_after - labels_before:
            names = self._labelled.setdefault((kind, *label), {})
            names[name] = None
            if before is not None:  # keep the order of creation
                self._labelled[kind, *label] = {other: None for other in self._objects[kind] if other in names}


def _list_labels(resource: Object | None) -> Set[tuple[str, str]]:
    """Return the labels whose values are strings."""
    labels = (resource or {"metadata": {}})["metadata"].get("labels") or {}
    return {(key, value) for key, value in labels.items() if isinstance(value, str)}


def selects(labels: Mapping[str, str], resource: Object) -> bool:
    """Return whether an object has all of `labels`."""
    present = resource["metadata"].get("labels") or {}
    return all(present.get(key) == value for key, value in labels.items())


def owner_uid(resource: Object) -> str | None:
    """Return the uid of the object's controller, or None."""
    owners = resource["metadata"].get("ownerReferences") or []
    return owners[0]["uid"] if owners else None


def owner_reference(owner: Object) -> dict[str, Any]:
    """Return the `ownerReferences` entry for objects that `owner` controls."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
