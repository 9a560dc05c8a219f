"""The objects of a namespace, through the API server, and the shared definition of a custom resource."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.kubernetes.client import (
    APPLY_PATCH,
    MERGE_PATCH,
    Api,
    Conflict,
    NotFound,
    api_version,
    build_path,
    label_selector,
)
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features import CustomResource
from faultset.collector.spec.manifests import resource_definition
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

FIELD_MANAGER = "faultset"
_PAGE_SIZE = 500


class Objects:
    """Reads and changes the objects of a namespace.

    Volumes have no namespace. In an application that we deploy, the names of volumes and storage classes therefore get
    the namespace as a prefix, so that a claim cannot bind a volume of another episode. Callers use names without the
    prefix.

    Parameters
    ----------
    own_volumes
        Whether to add the prefix.
    names
        Names of objects by `(kind, service)`, for objects that are not named after their service.
    custom
        The application's custom resource, if it has one.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        own_volumes: bool = False,
        names: Mapping[tuple[str, str], str] | None = None,
        custom: CustomResource | None = None,
    ):
        self.api, self.namespace, self.custom = api, namespace, custom
        self._names = names or {}
        self._prefix = f"{namespace}-" if own_volumes else ""

    def get(self, kind: str, name: str) -> Object:
        """Return one object; raise NotFound."""
        return self.to_manifest(self.api.get(self._path(kind, name)))

    def find(self, kind: str, name: str) -> Object | None:
        """Return one object, or None."""
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return all objects of a kind with the labels, sorted by name."""
        items, _ = self.list_with_version(kind, labels)
        return sorted(items, key=lambda item: item["metadata"]["name"])

    def list_with_version(self, kind: str, labels: Mapping[str, str] | None = None) -> tuple[Sequence[Object], str]:
        """Return all objects of a kind, and the resource version to watch from."""
        query: dict[str, Any] = {"limit": _PAGE_SIZE}
        if labels:
            query["labelSelector"] = label_selector(labels)
        items: list[Object] = []
        common = {"apiVersion": api_version(kind, custom=self.custom), "kind": kind}
        while True:
            response = self.api.get(self._path(kind), query)
            items += [{**common, **item} for item in response["items"]]
            if not response["metadata"].get("continue"):
                members = [self.to_manifest(item) for item in items if self.contains(item)]
                return members, response["metadata"]["resourceVersion"]
            query["continue"] = response["metadata"]["continue"]

    def apply(self, manifest: Mapping[str, Any]) -> Object:
        """Create or change an object by server-side apply."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        query = {"fieldManager": FIELD_MANAGER, "force": True}
        body = self.to_stored(manifest)
        return self.to_manifest(self._request("PATCH", self._path(kind, name), query, body, APPLY_PATCH))

    def create(self, manifest: Mapping[str, Any]) -> bool:
        """Create an object; return False if it already exists."""
        try:
            self._request("POST", self._path(manifest["kind"]), None, self.to_stored(manifest))
        except Conflict:
            return False
        return True

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch; the resources of a pod are changed through the subresource `resize`."""
        path = self._path(kind, name)
        if kind == "Pod" and self._resizes(name, change):
            path += "/resize"
        return self.to_manifest(self._request("PATCH", path, {"fieldManager": FIELD_MANAGER}, change, MERGE_PATCH))

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object and, in the background, its dependents; raise NotFound."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = int(grace_period_s)
        self._request("DELETE", self._path(kind, name), None, body)

    def watch(self, kind: str, version: str) -> Iterator[bytes]:
        """Yield the lines of a watch that starts at a version; it ends after five minutes or with the connection."""
        query = {"watch": True, "resourceVersion": version, "allowWatchBookmarks": True, "timeoutSeconds": 300}
        return self.api.stream(self._path(kind), query)

    def to_manifest(self, stored: Object) -> Object:
        """Convert an object of the cluster to a manifest: remove the prefix and `managedFields`."""
        stored.get("metadata", {}).pop("managedFields", None)
        if not self._prefix or stored["kind"] not in ("PersistentVolume", "PersistentVolumeClaim"):
            return stored
        return self._rename(stored, lambda name: name.removeprefix(self._prefix))

    def to_stored(self, manifest: Mapping[str, Any]) -> Object:
        """Convert a manifest to an object of the cluster: add the prefix to names."""
        if not self._prefix or manifest["kind"] not in ("PersistentVolume", "PersistentVolumeClaim"):
            return dict(manifest)
        return self._rename(manifest, lambda name: f"{self._prefix}{name}" if name else name)

    def _rename(self, resource: Mapping[str, Any], rename: Any) -> Object:
        result = copy.deepcopy(dict(resource))
        if result["kind"] == "PersistentVolume":
            result["metadata"]["name"] = rename(result["metadata"]["name"])
        for field in ("storageClassName", "volumeName"):
            if result.get("spec", {}).get(field):
                result["spec"][field] = rename(result["spec"][field])
        return result

    def contains(self, stored: Mapping[str, Any]) -> bool:
        """Return whether an object belongs to this namespace; for volumes, the name or the claim decides."""
        if stored["kind"] != "PersistentVolume":
            return True
        claim = stored["spec"].get("claimRef") or {}
        has_prefix = self._prefix and stored["metadata"]["name"].startswith(self._prefix)
        return bool(has_prefix) or claim.get("namespace") == self.namespace

    def _path(self, kind: str, name: str | None = None) -> str:
        if kind == "PersistentVolume" and name is not None:
            name = f"{self._prefix}{name}"
        if name is not None:
            name = self._names.get((kind, name), name)
        return build_path(kind, self.namespace, name, custom=self.custom)

    def _resizes(self, name: str, change: Mapping[str, Any]) -> bool:
        resources = {c["name"]: c.get("resources") for c in change.get("spec", {}).get("containers", [])}
        if not resources:
            return False
        current = self.api.get(self._path("Pod", name))["spec"]["containers"]
        return any(c["name"] in resources and c.get("resources") != resources[c["name"]] for c in current)

    def _request(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str = "application/json"
    ) -> Any:
        return json.loads(self.api.call(method, path, query=query, body=body, content_type=content_type))


DEFINITION_KIND = "CustomResourceDefinition"
DEFINITION = "faultset.dev/definition"
"""Label of a namespace with the name of the definition that it uses."""
USER_PREFIX = "user.faultset.dev/"
"""Prefix of the annotations of a definition; each names a namespace that uses the definition."""

_TIMEOUT_S = 60.0
_PAUSE_S = 0.2
_MAX_ATTEMPTS = 10


class SharedDefinition:
    """The custom resource definition of an application, shared by episodes; does nothing without an operator.

    Parameters
    ----------
    namespace
        The application's namespace, which must exist before `acquire`.
    """

    def __init__(self, api: Api, app: AppSpec, namespace: str):
        self._api, self._app, self._namespace = api, app, namespace
        self._definition = resource_definition(app)

    @property
    def name(self) -> str | None:
        """Name of the definition; None without an operator."""
        return None if self._definition is None else self._definition["metadata"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of a namespace that uses the definition."""
        return {} if self.name is None else {DEFINITION: self.name}

    def check(self) -> None:
        """Raise PlatformError if the cluster's definition is not ours; its operator would act on our objects."""
        if self.name is not None:
            self._check_owner(self._api.find(build_path(DEFINITION_KIND, "", self.name)))

    def acquire(self, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Create the definition if needed, register the namespace as its user, and wait until the cluster serves it.

        Raises
        ------
        PlatformError
            The definition has another owner, or is not served in time.
        """
        if self._definition is None or self.name is None:
            return
        definition, name = self._definition, self.name
        if not poll_until(lambda: self._acquire_step(definition, name), timeout_s=timeout_s, pause_s=_PAUSE_S):
            raise PlatformError(f"the cluster does not serve {name} after {timeout_s:g} s; check its status")

    def _acquire_step(self, definition: Object, name: str) -> bool:
        """Take the next step of `acquire`; return whether it is complete."""
        current = self._api.find(build_path(DEFINITION_KIND, "", name))
        self._check_owner(current)
        user = {f"{USER_PREFIX}{self._namespace}": "yes"}
        try:
            if current is None:
                metadata = {**definition["metadata"], "labels": MANAGED, "annotations": user}
                self._api.post(build_path(DEFINITION_KIND, ""), {**definition, "metadata": metadata})
            elif current["metadata"].get("deletionTimestamp"):
                return False  # its last user is removing it
            elif self._namespace not in _users(current):
                change = {"metadata": {"annotations": user}}
                self._api.call("PATCH", build_path(DEFINITION_KIND, "", name), body=change, content_type=MERGE_PATCH)
            else:
                return _is_established(current) and _sample_objects(self._api, current) is not None
        except (Conflict, NotFound):
            pass  # another episode has changed the definition first
        return False

    def release(self) -> None:
        """Remove the definition unless other namespaces use it; call this after removing our namespace."""
        if self.name is not None:
            remove_unused(self._api, self.name)

    def _check_owner(self, definition: Object | None) -> None:
        if definition is not None and not _is_ours(definition):
            kind = definition["spec"]["names"]["kind"]
            raise PlatformError(
                f"the cluster already has a definition of {kind} ({self.name}) whose operator would also act on the "
                f"{kind} of app {self._app.name}; describe an existing {kind} in an app file with `deployed`, or "
                "remove the definition"
            )


def remove_unused(api: Api, name: str) -> bool:
    """Remove our definition if it has no users and no objects; return whether it was removed."""
    for _ in range(_MAX_ATTEMPTS):
        definition = api.find(build_path(DEFINITION_KIND, "", name))
        if definition is None or not _is_ours(definition) or definition["metadata"].get("deletionTimestamp"):
            return False
        if any(api.find(build_path("Namespace", "", user)) for user in _users(definition)) or _sample_objects(
            api, definition
        ):
            return False
        preconditions = {key: definition["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            return api.delete(build_path(DEFINITION_KIND, "", name), {"preconditions": preconditions})
        except Conflict:
            continue
    return False


def _is_ours(definition: Object) -> bool:
    return MANAGED.items() <= (definition["metadata"].get("labels") or {}).items()


def _users(definition: Mapping[str, Mapping[str, dict[str, str]]]) -> Iterator[str]:
    for key in definition["metadata"].get("annotations") or {}:
        if key.startswith(USER_PREFIX):
            yield key.removeprefix(USER_PREFIX)


def _is_established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


def _sample_objects(api: Api, definition: Object) -> list[Object] | None:
    """Return at most one object of the defined kind, from any namespace; None if the kind is not served."""
    spec = definition["spec"]
    version = next(entry["name"] for entry in spec["versions"] if entry["served"])
    try:
        return api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", {"limit": 1})["items"]
    except NotFound:
        return None
