"""The objects of one namespace: read, applied, patched and deleted through the API server."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.kubernetes.api.client import APPLY_PATCH, MERGE_PATCH, Api, Conflict, NotFound
from faultset.collector.platforms.kubernetes.api.kinds import api_version, path_of
from faultset.collector.spec.features.operators import CustomResource

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
