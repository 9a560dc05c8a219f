"""The objects of one namespace: read, applied, patched and deleted through the API server."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.kubernetes.client import (
    APPLY_PATCH,
    MERGE_PATCH,
    Api,
    Conflict,
    NotFound,
    api_version,
    path_of,
)
from faultset.collector.platforms.kubernetes.namespaces import MANAGED
from faultset.collector.platforms.objects import Object
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.custom_resources import resource_definition
from faultset.collector.spec.features.operators import CustomResource
from faultset.core.errors import PlatformError

FIELD_MANAGER = "faultset"
_PAGE = 500


class Objects:
    """Reads and writes of one namespace.

    Volumes belong to no namespace. Those of an application that we deploy carry the namespace in their name, and so
    does their storage class, lest a claim of one episode binds a volume of another; here they are called as in the
    application's manifests.

    Parameters
    ----------
    own_volumes
        Whether the namespace's volumes are ours, and named so.
    names
        What an object is called by `(kind, name of its service)`, where the two differ.
    custom
        A kind that the application defines itself.
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
        return self.shown(self.api.get(self._path(kind, name)))

    def find(self, kind: str, name: str) -> Object | None:
        """Return one object, or None."""
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return all objects of a kind that carry the labels, by name."""
        found, _ = self.list_at(kind, labels)
        return sorted(found, key=lambda one: one["metadata"]["name"])

    def list_at(self, kind: str, labels: Mapping[str, str] | None = None) -> tuple[Sequence[Object], str]:
        """Return all objects of a kind, and the version from which a watch sees what comes after."""
        query: dict[str, Any] = {"limit": _PAGE}
        if labels:
            query["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        items: list[Object] = []
        common = {"apiVersion": api_version(kind, custom=self.custom), "kind": kind}
        while True:
            answer = self.api.get(self._path(kind), query)
            items += [{**common, **item} for item in answer["items"]]
            if not answer["metadata"].get("continue"):
                mine = [self.shown(item) for item in items if self._is_mine(item)]
                return mine, answer["metadata"]["resourceVersion"]
            query["continue"] = answer["metadata"]["continue"]

    def apply(self, wanted: Mapping[str, Any]) -> Object:
        """Create or change an object by server-side apply."""
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        query = {"fieldManager": FIELD_MANAGER, "force": True}
        body = self.stored(wanted)
        return self.shown(self._parsed("PATCH", self._path(kind, name), query, body, APPLY_PATCH))

    def create(self, wanted: Mapping[str, Any]) -> bool:
        """Create an object; say whether it was created, or existed already."""
        try:
            self._parsed("POST", self._path(wanted["kind"]), None, self.stored(wanted))
        except Conflict:
            return False
        return True

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch.

        The resources of a running pod are changed by its subresource `resize`, everything else of it directly.
        """
        path = self._path(kind, name)
        if kind == "Pod" and self._resizes(name, change):
            path += "/resize"
        return self.shown(self._parsed("PATCH", path, {"fieldManager": FIELD_MANAGER}, change, MERGE_PATCH))

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object and, in the background, what it owns; raise NotFound."""
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = int(grace_period_s)
        self._parsed("DELETE", self._path(kind, name), None, body)

    def watch(self, kind: str, version: str) -> Iterator[bytes]:
        """Yield the lines of a watch from a version on; ends after about five minutes, or with the connection."""
        query = {"watch": True, "resourceVersion": version, "allowWatchBookmarks": True, "timeoutSeconds": 300}
        return self.api.stream(self._path(kind), query)

    def shown(self, stored: Object) -> Object:
        """Return an object under the names of the manifests, without the book-keeping of who manages which field."""
        stored.get("metadata", {}).pop("managedFields", None)
        if not self._prefix or stored["kind"] not in ("PersistentVolume", "PersistentVolumeClaim"):
            return stored
        return self._renamed(stored, lambda name: name.removeprefix(self._prefix))

    def stored(self, wanted: Mapping[str, Any]) -> Object:
        """Return an object under the names that it has in the cluster."""
        if not self._prefix or wanted["kind"] not in ("PersistentVolume", "PersistentVolumeClaim"):
            return dict(wanted)
        return self._renamed(wanted, lambda name: f"{self._prefix}{name}" if name else name)

    def _renamed(self, found: Mapping[str, Any], rename: Any) -> Object:
        made = copy.deepcopy(dict(found))
        if made["kind"] == "PersistentVolume":
            made["metadata"]["name"] = rename(made["metadata"]["name"])
        for field in ("storageClassName", "volumeName"):
            if made.get("spec", {}).get(field):
                made["spec"][field] = rename(made["spec"][field])
        return made

    def _is_mine(self, stored: Mapping[str, Any]) -> bool:
        if stored["kind"] != "PersistentVolume":
            return True
        claim = stored["spec"].get("claimRef") or {}
        own = self._prefix and stored["metadata"]["name"].startswith(self._prefix)
        return bool(own) or claim.get("namespace") == self.namespace

    def is_mine(self, stored: Mapping[str, Any]) -> bool:
        """Say whether a cluster-wide object belongs to this namespace."""
        return self._is_mine(stored)

    def _path(self, kind: str, name: str | None = None) -> str:
        if kind == "PersistentVolume" and name is not None:
            name = f"{self._prefix}{name}"
        if name is not None:
            name = self._names.get((kind, name), name)
        return path_of(kind, self.namespace, name, custom=self.custom)

    def _resizes(self, name: str, change: Mapping[str, Any]) -> bool:
        wanted = {c["name"]: c.get("resources") for c in change.get("spec", {}).get("containers", [])}
        if not wanted:
            return False
        current = self.api.get(self._path("Pod", name))["spec"]["containers"]
        return any(c["name"] in wanted and c.get("resources") != wanted[c["name"]] for c in current)

    def _parsed(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str = "application/json"
    ) -> Any:
        import json

        return json.loads(self.api.call(method, path, query=query, body=body, content_type=content_type))


KIND = "CustomResourceDefinition"
DEFINITION = "faultset.dev/definition"
"""Label of a namespace that uses a definition of ours: the definition's name."""
USER = "user.faultset.dev/"
"""Begin of the annotation of a definition that a namespace uses; its name follows."""

_TIMEOUT_S = 60.0
_PAUSE_S = 0.2
_REMOVALS = 10


class SharedDefinition:
    """The definition that an application brings along, as one episode uses it; nothing for one without an operator.

    Parameters
    ----------
    namespace
        The application's, which must exist when the definition is taken.
    """

    def __init__(self, api: Api, app: AppSpec, namespace: str):
        self._api, self._app, self._namespace = api, app, namespace
        self._wanted = resource_definition(app)

    @property
    def name(self) -> str | None:
        """Name of the definition; None where there is nothing to define."""
        return None if self._wanted is None else self._wanted["metadata"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the namespace that uses it."""
        return {} if self.name is None else {DEFINITION: self.name}

    def check(self) -> None:
        """Raise PlatformError when somebody else has defined the custom resource, and so may act on every object."""
        if self.name is not None:
            self._refuse_others(_find(self._api, self.name))

    def take(self, *, timeout_s: float = _TIMEOUT_S) -> None:
        """Make the definition unless it exists, enter the namespace as a user, and wait until it is served.

        Raises
        ------
        PlatformError
            Somebody else has defined the resource, or the server does not serve it in time.
        """
        if self._wanted is None or self.name is None:
            return
        deadline = time.monotonic() + timeout_s
        while not self._is_taken(self._wanted, self.name):
            if time.monotonic() > deadline:
                raise PlatformError(f"the cluster does not serve {self.name} after {timeout_s:g} s; look at its status")
            time.sleep(_PAUSE_S)

    def _is_taken(self, wanted: Object, name: str) -> bool:
        """Take the next step; say whether there was none to take."""
        found = _find(self._api, name)
        self._refuse_others(found)
        user = {f"{USER}{self._namespace}": "yes"}
        try:
            if found is None:
                metadata = {**wanted["metadata"], "labels": MANAGED, "annotations": user}
                self._api.post(path_of(KIND, ""), {**wanted, "metadata": metadata})
            elif found["metadata"].get("deletionTimestamp"):
                return False  # the last user of before removes it at this moment
            elif self._namespace not in _users(found):
                change = {"metadata": {"annotations": user}}
                self._api.call("PATCH", path_of(KIND, "", name), body=change, content_type=MERGE_PATCH)
            else:
                return _is_established(found) and _objects(self._api, found) is not None
        except (Conflict, NotFound):
            pass  # another episode was faster
        return False

    def release(self) -> None:
        """Remove the definition unless others use it, once the namespace is gone; may be called twice."""
        if self.name is not None:
            remove_unused(self._api, self.name)

    def _refuse_others(self, found: Object | None) -> None:
        if found is not None and not _is_ours(found):
            kind = found["spec"]["names"]["kind"]
            raise PlatformError(
                f"the cluster has a definition of {kind} that is not ours ({self.name}), whose operator would act on "
                f"the {kind} of app {self._app.name} as well; name an app file with deployed for a {kind} of that "
                "operator, or remove the definition"
            )


def remove_unused(api: Api, name: str) -> bool:
    """Remove a definition of ours that no existing namespace uses and that has no objects; say whether it was removed.

    It is looked at again when it has changed meanwhile.
    """
    for _ in range(_REMOVALS):
        found = _find(api, name)
        if found is None or not _is_ours(found) or found["metadata"].get("deletionTimestamp"):
            return False
        if any(_exists(api, user) for user in _users(found)) or _objects(api, found):
            return False
        seen = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
        try:
            api.call("DELETE", path_of(KIND, "", name), body={"preconditions": seen})
        except NotFound:
            return False
        except Conflict:
            continue
        return True
    return False


def _find(api: Api, name: str) -> Object | None:
    try:
        return api.get(path_of(KIND, "", name))
    except NotFound:
        return None


def _is_ours(found: Object) -> bool:
    return MANAGED.items() <= (found["metadata"].get("labels") or {}).items()


def _users(found: Mapping[str, Mapping[str, dict[str, str]]]) -> Iterator[str]:
    for key in found["metadata"].get("annotations") or {}:
        if key.startswith(USER):
            yield key.removeprefix(USER)


def _exists(api: Api, namespace: str) -> bool:
    try:
        api.get(path_of("Namespace", "", namespace))
    except NotFound:
        return False
    return True


def _is_established(found: Object) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _objects(api: Api, found: Object) -> list[Object] | None:
    """Return an object of the kind that is defined, if there is one, of any namespace; None when it is not served."""
    spec = found["spec"]
    version = next(one["name"] for one in spec["versions"] if one["served"])
    try:
        return api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", {"limit": 1})["items"]
    except NotFound:
        return None
