"""The namespaces of an episode, their objects, and the shared definition of a custom resource."""

from __future__ import annotations

import contextlib
import copy
import json
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features import CustomResource
from faultset.collector.spec.manifests import resource_definition
from faultset.core.errors import PlatformError
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

MANAGED = {"app.kubernetes.io/managed-by": "faultset"}
"""Label of all our cluster-wide objects."""
EPISODE = "faultset.dev/episode"
APP_NAMESPACE = "faultset.dev/pair"
INJECTOR = "faultset.dev/injector"
"""Label of a control namespace with objects of an injector other than our agents."""
RENEWED = "faultset.dev/renewed"
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}

RENEW_S = 15.0
ABANDONED_AFTER_S = 90.0
REMOVAL_TIMEOUT_S = 120.0
_POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class EpisodeNamespaces:
    """Names of an episode's namespaces: the application's, which is recorded, and the control namespace."""

    app: str
    control: str

    @staticmethod
    def draw(app: str, deployed: str | None = None) -> EpisodeNamespaces:
        """Draw random names; an application that is already running keeps its namespace `deployed`."""
        name = f"{app}-{secrets.token_hex(4)}"
        return EpisodeNamespaces(app=deployed or name, control=f"{name}-control")


def create_namespace(api: Api, name: str, labels: Mapping[str, str]) -> None:
    annotations = {RENEWED: str(int(time.time()))}
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {**MANAGED, **labels}, "annotations": annotations},
    }
    try:
        api.post(build_path("Namespace", ""), body)
    except Conflict:
        raise PlatformError(f"namespace {name} already exists; run 'faultset recover --platform kubernetes'") from None


def renew(api: Api, name: str) -> None:
    """Write a heartbeat to a namespace, so that it does not count as abandoned."""
    change = {"metadata": {"annotations": {RENEWED: str(int(time.time()))}}}
    api.call("PATCH", build_path("Namespace", "", name), body=change, content_type=MERGE_PATCH)


def remove_namespaces(api: Api, names: tuple[str, ...], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Delete namespaces and their pods, and wait until they are removed; see `await_removal`."""
    delete_namespaces(api, names)
    await_removal(api, names, timeout_s=timeout_s)


def delete_namespaces(api: Api, names: Iterable[str]) -> None:
    """Delete namespaces and their pods; the cluster removes them asynchronously."""
    for name in names:
        if api.delete(build_path("Namespace", "", name), {"propagationPolicy": "Background"}):
            api.delete(build_path("Pod", name), {"gracePeriodSeconds": 1})


def await_removal(api: Api, names: Iterable[str], *, timeout_s: float = REMOVAL_TIMEOUT_S) -> None:
    """Wait until deleted namespaces are removed.

    Raises
    ------
    PlatformError
        A namespace is still terminating after `timeout_s`; the message says why.
    """
    deadline = time.monotonic() + timeout_s
    for name in names:
        while (namespace := api.find(build_path("Namespace", "", name))) is not None:
            if time.monotonic() > deadline:
                raise PlatformError(
                    f"namespace {name} is still terminating after {timeout_s:g} s ({_removal_obstacle(namespace)}); "
                    "fix that, then run 'faultset recover --platform kubernetes'"
                )
            time.sleep(_POLL_S)


def remove_volumes(api: Api, namespace: str) -> int:
    """Delete the volumes of a namespace; return their number."""
    response = api.get(build_path("PersistentVolume", ""), {"labelSelector": f"{APP_NAMESPACE}={namespace}"})
    for item in response["items"]:
        api.delete(build_path("PersistentVolume", "", item["metadata"]["name"]))
    return len(response["items"])


def list_namespaces(api: Api) -> list[dict[str, Any]]:
    selector = f"{label_selector(MANAGED)},{EPISODE}"
    return api.get(build_path("Namespace", ""), {"labelSelector": selector})["items"]


def await_removal_of_episodes(api: Api, episodes: Collection[str]) -> None:
    """Wait until the deleted namespaces of episodes are removed; see `await_removal`."""
    deleted = (item["metadata"] for item in list_namespaces(api) if item["metadata"].get("deletionTimestamp"))
    await_removal(api, [metadata["name"] for metadata in deleted if metadata["labels"][EPISODE] in episodes])


def is_abandoned(namespace: Mapping[str, Any]) -> bool:
    """Return whether a namespace has had no heartbeat for so long that its collector must have ended."""
    renewed = (namespace["metadata"].get("annotations") or {}).get(RENEWED, "0")
    return time.time() - float(renewed) > ABANDONED_AFTER_S


def _removal_obstacle(namespace: Mapping[str, Any]) -> str:
    conditions = namespace.get("status", {}).get("conditions") or []
    messages = [c["message"] for c in conditions if c.get("status") == "True" and c.get("message")]
    return "; ".join(messages)[:300] or "the cluster does not say why"


_STEP_S = 0.05


class Heartbeat:
    """Renews the heartbeat of the namespaces in a thread; without a heartbeat they count as abandoned.

    Attributes
    ----------
    worst_delay_s
        Worst scheduling delay of the thread.
    """

    def __init__(self, api: Api, namespaces: EpisodeNamespaces):
        self.worst_delay_s = 0.0
        self._api, self._namespaces = api, namespaces
        self._closing = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._closing.set()

    def _run(self) -> None:
        next_renewal = 0.0
        while not self._closing.is_set():
            before = time.monotonic()
            self._closing.wait(_STEP_S)
            self.worst_delay_s = max(self.worst_delay_s, time.monotonic() - before - _STEP_S)
            if time.monotonic() >= next_renewal:
                next_renewal = time.monotonic() + RENEW_S
                with contextlib.suppress(PlatformError):
                    renew(self._api, self._namespaces.control)
                    renew(self._api, self._namespaces.app)


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
        return self.to_manifest(self.api.get(self._path(kind, name)))

    def find(self, kind: str, name: str) -> Object | None:
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

_DEFINITION_TIMEOUT_S = 60.0
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

    def acquire(self, *, timeout_s: float = _DEFINITION_TIMEOUT_S) -> None:
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
