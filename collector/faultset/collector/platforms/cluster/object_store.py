"""An in-memory object store that behaves like the Kubernetes API server for the kinds an application needs."""

from __future__ import annotations

import base64
import random
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from faultset.collector.platforms.journal import merge
from faultset.collector.platforms.objects import Object, ObjectNotFound, copied, quantity
from faultset.collector.platforms.observation.objects import rfc3339
from faultset.core.errors import PlatformError


def with_defaults(made: dict[str, Any]) -> dict[str, Any]:
    """Fill in an object's defaults in place and return it."""
    if made["kind"] == "Secret":
        _secret(made)
    spec = made.get("spec")
    if isinstance(spec, dict) and made["kind"] in _DEFAULTS:
        _DEFAULTS[made["kind"]](spec)
    return made


def _secret(made: dict[str, Any]) -> None:
    """Move the texts that a client may give in place of the encoded values to where they are kept."""
    texts = made.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    if encoded:
        made["data"] = {**(made.get("data") or {}), **encoded}


def _pod(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", [])):
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def _deployment(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("strategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    _pod(spec["template"].setdefault("spec", {}))


def _stateful_set(spec: dict[str, Any]) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    _pod(spec["template"].setdefault("spec", {}))


def _service(spec: dict[str, Any]) -> None:
    spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports", []):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])


def _volume(spec: dict[str, Any]) -> None:
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")


_DEFAULTS = {
    "Pod": _pod,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "Service": _service,
    "PersistentVolume": _volume,
}


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_LARGEST_ID = 2**31 - 1
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_CHANGEABLE = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit")
_CHANGEABLE += ("persistentVolumeClaimRetentionPolicy", "minReadySeconds")


class InvalidObject(PlatformError):
    """The API server refuses an object; the text is that of Kubernetes."""


def check_object(made: Object, before: Object | None = None) -> None:
    """Raise InvalidObject when an object is refused.

    Parameters
    ----------
    before
        The object in its place, if there is one.
    """
    faults = list(_CHECKS[made["kind"]](made["spec"])) if made["kind"] in _CHECKS and "spec" in made else []
    if made["kind"] == "StatefulSet" and before is not None and _fixed(made) != _fixed(before):
        known = ", ".join(f"'{field}'" for field in _CHANGEABLE[:-1])
        faults.append(
            f"spec: Forbidden: updates to statefulset spec for fields other than {known} and '{_CHANGEABLE[-1]}' "
            "are forbidden"
        )
    if faults:
        group = "." + made["apiVersion"].partition("/")[0] if "/" in made["apiVersion"] else ""
        text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
        raise InvalidObject(f'{made["kind"]}{group} "{made["metadata"]["name"]}" is invalid: {text}')


def _fixed(stateful_set: Object) -> dict[str, Any]:
    return {key: value for key, value in stateful_set["spec"].items() if key not in _CHANGEABLE}


def _validation_pod(spec: dict[str, Any], path: str = "spec") -> Iterator[str]:
    for number, toleration in enumerate(spec.get("tolerations") or ()):
        place = f"{path}.tolerations[{number}]"
        yield from _one_of(f"{place}.operator", toleration.get("operator", "Equal"), _OPERATORS)
        yield from _one_of(f"{place}.effect", toleration.get("effect") or _EFFECTS[0], _EFFECTS)
    yield from _ids(f"{path}.securityContext", spec.get("securityContext") or {})
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or ()):
            yield from _container(f"{path}.{field}[{number}]", container)


def _container(path: str, container: dict[str, Any]) -> Iterator[str]:
    yield from _ids(f"{path}.securityContext", container.get("securityContext") or {})
    resources = container.get("resources") or {}
    requests, limits = (resources.get(field) or {} for field in ("requests", "limits"))
    for resource in ("cpu", "memory"):
        wanted, most = requests.get(resource), limits.get(resource)
        if wanted is not None and most is not None and quantity(wanted) > quantity(most):
            reason = f"must be less than or equal to {resource} limit of {most}"
            yield f'{path}.resources.requests: Invalid value: "{wanted}": {reason}'


def _ids(path: str, context: dict[str, Any]) -> Iterator[str]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field)
        if value is not None and not 0 <= value <= _LARGEST_ID:
            yield f"{path}.{field}: Invalid value: {value}: must be between 0 and {_LARGEST_ID}, inclusive"


def _one_of(path: str, value: str, supported: Iterable[str]) -> Iterator[str]:
    if value not in supported:
        listed = ", ".join(f'"{one}"' for one in supported)
        yield f'{path}: Unsupported value: "{value}": supported values: {listed}'


def _workload(spec: dict[str, Any]) -> Iterator[str]:
    replicas = spec.get("replicas", 1)
    if replicas < 0:
        yield f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
    yield from _validation_pod(spec["template"].get("spec", {}), "spec.template.spec")


def _validation_stateful_set(spec: dict[str, Any]) -> Iterator[str]:
    yield from _workload(spec)
    kind = spec.get("updateStrategy", {}).get("type", "RollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        yield f"spec.updateStrategy: Invalid value: \"{kind}\": must be 'RollingUpdate' or 'OnDelete'"


def _claim(spec: dict[str, Any]) -> Iterator[str]:
    name = spec.get("storageClassName") or ""
    if name and not _SUBDOMAIN.fullmatch(name):
        yield f'spec.storageClassName: Invalid value: "{name}": {_SUBDOMAIN_RULE}'


_CHECKS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "Pod": _validation_pod,
    "Deployment": _workload,
    "StatefulSet": _validation_stateful_set,
    "PersistentVolumeClaim": _claim,
}


Listener = Callable[[str, str, Object | None], None]

PROTECTED = {
    "PersistentVolumeClaim": "kubernetes.io/pvc-protection",
    "PersistentVolume": "kubernetes.io/pv-protection",
}

CLUSTER_WIDE = frozenset({"Node", "PersistentVolume", "StorageClass", "CustomResourceDefinition"})
"""Kinds whose objects belong to no namespace."""

_OWNED_BY_SERVER = ("uid", "creationTimestamp", "generation", "namespace", "resourceVersion")
_OWNED_BY_SERVER += ("deletionTimestamp", "deletionGracePeriodSeconds")
_KEPT_BY_APPLY = ("ownerReferences", "finalizers")


class ObjectStore:
    """Objects by kind and name, with versions, owners, graceful deletion and listeners.

    Parameters
    ----------
    clock
        Returns the time in nanoseconds since 1970.
    rng
        Source of uids.
    namespace
        Namespace that namespaced objects are stamped with.
    """

    def __init__(self, *, clock: Callable[[], int], rng: random.Random, namespace: str = "default"):
        self.clock = clock
        self.namespace = namespace
        self.version = 0
        self._rng = rng
        self._objects: dict[str, dict[str, Object]] = {}
        self._owned: dict[tuple[str, str], dict[str, None]] = {}
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener(kind, name, object)` after every change; the object is None once it is gone."""
        self._listeners.append(listener)

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""
        return copied(self._existing(kind, name))

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Return copies of the objects of a kind that carry `labels`, oldest first."""
        return [copied(found) for found in self.each(kind, labels)]

    def find(self, kind: str, name: str) -> Object | None:
        """Return the stored object itself, to be read only, or None."""
        return self._objects.get(kind, {}).get(name)

    def each(self, kind: str, labels: Mapping[str, str] | None = None) -> Iterator[Object]:
        """Yield the stored objects themselves, to be read only, oldest first."""
        for found in list(self._objects.get(kind, {}).values()):
            if not labels or selects(labels, found):
                yield found

    def all(self) -> Iterator[Object]:
        """Yield all stored objects themselves."""
        for objects in self._objects.values():
            yield from objects.values()

    def owned(self, kind: str, owner: Object) -> list[Object]:
        """Return the stored objects of a kind whose controller is `owner`, to be read only, oldest first."""
        names = self._owned.get((kind, owner["metadata"]["uid"]), ())
        return [self._objects[kind][name] for name in names]

    def create(self, wanted: Mapping[str, Any]) -> Object:
        """Add an object and return it; raise PlatformError when the name is taken, InvalidObject when it is refused."""
        made = with_defaults(copied(dict(wanted)))
        kind, name = made["kind"], made["metadata"]["name"]
        if self.find(kind, name) is not None:
            raise PlatformError(f'{kind} "{name}" already exists')
        check_object(made)
        metadata = made["metadata"]
        metadata["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        metadata["creationTimestamp"] = rfc3339(self.clock())
        metadata["generation"] = 1
        if kind not in CLUSTER_WIDE:
            metadata["namespace"] = self.namespace
        if kind in PROTECTED:
            metadata["finalizers"] = [PROTECTED[kind]]
            made["status"] = {"phase": "Pending"}
        self._put(made)
        return made

    def apply(self, wanted: Mapping[str, Any]) -> Object:
        """Create an object, or replace all of an existing one but its status and what the server owns."""
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        current = self.find(kind, name)
        if current is None:
            return self.create({key: value for key, value in wanted.items() if key != "status"})
        made = with_defaults(copied(dict(wanted)))
        kept = {key: current["metadata"][key] for key in _KEPT_BY_APPLY if key in current["metadata"]}
        made["metadata"] = {**kept, **made["metadata"]}
        return self._replace(current, made)

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the stored object; raise InvalidObject when it is refused."""
        current = self._existing(kind, name)
        return self._replace(current, with_defaults(merge(current, change)))

    def set_status(self, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Replace an object's status; nothing happens when it is equal or the object is gone."""
        current = self.find(kind, name)
        if current is not None and current.get("status") != status:
            self._put({**current, "status": copied(dict(status))})

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Begin the deletion of an object; at once unless its pod runs or a finalizer protects it."""
        current = self._existing(kind, name)
        metadata = current["metadata"]
        if kind == "Pod" and current["spec"].get("nodeName"):
            grace = current["spec"]["terminationGracePeriodSeconds"] if grace_period_s is None else grace_period_s
            if grace > 0:
                already = metadata.get("deletionGracePeriodSeconds")
                if already is None or grace < already:
                    self._mark_deleted(current, grace)
                return
        elif metadata.get("finalizers"):
            if not metadata.get("deletionTimestamp"):
                self._mark_deleted(current, 0)
            return
        self.remove(kind, name)

    def remove(self, kind: str, name: str) -> None:
        """Take an object out now and delete what it owns; nothing happens when it is gone."""
        gone = self._objects.get(kind, {}).pop(name, None)
        if gone is None:
            return
        self.version += 1
        self._note_owner(gone, None)
        for listener in self._listeners:
            listener(kind, name, None)
        for owned_kind in list(self._objects):
            for dependent in self.owned(owned_kind, gone):
                if not dependent["metadata"].get("deletionTimestamp"):
                    self.delete(owned_kind, dependent["metadata"]["name"])

    def _existing(self, kind: str, name: str) -> Object:
        found = self.find(kind, name)
        if found is None:
            raise ObjectNotFound(f'{kind} "{name}" not found')
        return found

    def _mark_deleted(self, current: Object, grace_s: float) -> None:
        metadata = {
            **current["metadata"],
            "deletionTimestamp": rfc3339(self.clock()),
            "deletionGracePeriodSeconds": grace_s,
        }
        self._put({**current, "metadata": metadata})

    def _replace(self, current: Object, wanted: Object) -> Object:
        kept = {key: current["metadata"][key] for key in _OWNED_BY_SERVER if key in current["metadata"]}
        metadata = {**wanted["metadata"], **kept}
        made = {**wanted, "metadata": metadata}
        if "status" in current:
            made["status"] = current["status"]
        if made == current:
            return current
        if made.get("spec") != current.get("spec"):
            check_object(made, current)
        if made.get("spec") != current.get("spec"):
            metadata["generation"] = current["metadata"]["generation"] + 1
        self._put(made)
        return made

    def _put(self, made: Object) -> None:
        self.version += 1
        made["metadata"] = {**made["metadata"], "resourceVersion": str(self.version)}
        kind, name = made["kind"], made["metadata"]["name"]
        self._note_owner(self.find(kind, name), made)
        self._objects.setdefault(kind, {})[name] = made
        for listener in self._listeners:
            listener(kind, name, made)

    def _note_owner(self, before: Object | None, after: Object | None) -> None:
        """Keep the index of what each owner owns."""
        uid_before = None if before is None else owner_uid(before)
        uid_after = None if after is None else owner_uid(after)
        if uid_before == uid_after:
            return
        kind, name = (after or before or {})["kind"], (after or before or {})["metadata"]["name"]
        if uid_before is not None:
            del self._owned[kind, uid_before][name]
        if uid_after is not None:
            self._owned.setdefault((kind, uid_after), {})[name] = None


def selects(labels: Mapping[str, str], found: Object) -> bool:
    """Say whether an object carries all of `labels`."""
    has = found["metadata"].get("labels") or {}
    return all(has.get(key) == value for key, value in labels.items())


def owner_uid(found: Object) -> str | None:
    """Return the uid of the object's controller, or None."""
    owners = found["metadata"].get("ownerReferences") or []
    return owners[0]["uid"] if owners else None


def owner_reference(owner: Object) -> dict[str, Any]:
    """Return the reference by which a dependent names its controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
