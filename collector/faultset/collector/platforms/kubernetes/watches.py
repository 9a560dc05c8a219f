"""What changes in a namespace, seen as it happens: objects and events, by watches that resume."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faultset.collector.platforms.kubernetes.client import Api, Expired, NotFound, path_of
from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.platforms.objects import Object, container_statuses
from faultset.collector.platforms.observation.objects import ChangeLog, Occurrence, parse_rfc3339_ns
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS

WATCHED = (
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "Service",
    "Endpoints",
    "ConfigMap",
    "PersistentVolumeClaim",
    "PersistentVolume",
)
_IGNORED = {("ConfigMap", "kube-root-ca.crt")}
CHAOS_MESH_GROUP = "chaos-mesh.org"
"""Group of objects whose events are no part of a view: they name the fault."""
_PAUSE_S = 0.5


class Watch:
    """Follows one kind in a thread of its own and tells of every change, also of those made while it was cut off.

    `tell(kind, name, object)` is called with the object, or None when it is gone.
    """

    def __init__(self, objects: Objects, kind: str, tell: Any):
        self.failure = ""
        self._objects, self._kind, self._tell = objects, kind, tell
        self._known: set[str] = set()
        self._ended = threading.Event()
        self._version = self._relist()
        self._thread = threading.Thread(target=self._follow, name=f"watch-{kind}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop telling; the thread ends by itself."""
        self._ended.set()

    def _relist(self) -> str:
        found, version = self._objects.list_at(self._kind)
        names = {one["metadata"]["name"] for one in found}
        for gone in self._known - names:
            self._tell(self._kind, gone, None)
        for one in found:
            self._tell(self._kind, one["metadata"]["name"], one)
        self._known = names
        return version

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                for line in self._objects.watch(self._kind, self._version):
                    if self._ended.is_set():
                        return
                    self._hear(json.loads(line))
            except Expired:
                self._resume()
            except (PlatformError, ValueError) as error:
                self.failure = "" if self._ended.is_set() else f"watching {self._kind} objects: {error}"
                self._ended.wait(_PAUSE_S)
            else:
                self.failure = ""
                self._ended.wait(0.05)

    def _resume(self) -> None:
        try:
            self._version = self._relist()
        except PlatformError as error:
            self.failure = f"watching {self._kind} objects: {error}"
            self._ended.wait(_PAUSE_S)

    def _hear(self, message: Mapping[str, Any]) -> None:
        found = message["object"]
        if message["type"] == "ERROR":
            if found.get("code") == 410:
                raise Expired(found.get("message", "gone"))
            self._ended.wait(_PAUSE_S)
            return
        self._version = found["metadata"]["resourceVersion"]
        if message["type"] == "BOOKMARK":
            return
        found.setdefault("kind", self._kind)
        if not self._objects.is_mine(found):
            return
        shown = self._objects.shown(found)
        name = shown["metadata"]["name"]
        if message["type"] == "DELETED":
            self._known.discard(name)
            self._tell(self._kind, name, None)
        else:
            self._known.add(name)
            self._tell(self._kind, name, shown)


class Observer:
    """Keeps what an operator would have seen: states of objects, events, and which service each belongs to.

    Parameters
    ----------
    label_key
        Label that names the workload on its objects.
    services
        Names of all workloads, for objects whose label names something else.
    pod_changed
        Called with every new state of a pod.
    """

    def __init__(self, objects: Objects, *, label_key: str, services: frozenset[str], pod_changed: Any):
        self.occurrences: list[Occurrence] = []
        self.changes = ChangeLog(clock=time.time_ns, service_of=self._service_of)
        self._objects, self._label_key, self._services = objects, label_key, services
        self._pod_changed = pod_changed
        self._owners: dict[tuple[str, str], str] = {}
        self._counted: dict[str, int] = {}
        self._lock = threading.Lock()
        self._watches: list[Watch] = []

    def start(self) -> None:
        """Begin to watch; what exists by now counts as seen now."""
        custom = () if self._objects.custom is None else (self._objects.custom.kind,)
        self._watches = [Watch(self._objects, kind, self._object_changed) for kind in (*WATCHED, *custom)]
        self._watches.append(Watch(self._objects, "Event", self._event_changed))

    def stop(self) -> None:
        """Stop recording."""
        for watch in self._watches:
            watch.end()

    def check(self) -> None:
        """Raise PlatformError when a watch cannot be held."""
        for watch in self._watches:
            if watch.failure:
                raise PlatformError(watch.failure)

    def service_of(self, kind: str, name: str) -> str | None:
        """Return the workload that owns an object which exists or existed."""
        return self._owners.get((kind, name))

    def service_of_pod(self, pod: str) -> str | None:
        """Return the workload of a pod, which may be gone."""
        return self._owners.get(("Pod", pod))

    def pods_seen(self) -> list[str]:
        """Return the names of all pods that ever were."""
        return [name for kind, name in list(self._owners) if kind == "Pod"]

    def _service_of(self, found: Mapping[str, Any]) -> str | None:
        label = (found["metadata"].get("labels") or {}).get(self._label_key)
        if label in self._services:
            return label
        name = found["metadata"]["name"]
        return name if name in self._services else None

    def _object_changed(self, kind: str, name: str, found: Object | None) -> None:
        if (kind, name) in _IGNORED:
            return
        with self._lock:
            if found is not None:
                service = self._service_of(found)
                if service is not None:
                    self._owners[(kind, name)] = service
            self.changes.changed(kind, name, found)
        if kind == "Pod" and found is not None:
            self._pod_changed(found)

    def _event_changed(self, kind: str, name: str, found: Object | None) -> None:
        if found is None:
            return
        series = found.get("series") or {}
        count = int(series.get("count") or found.get("count") or 1)
        about = found.get("involvedObject") or {}
        if about.get("fieldPath") == f"spec.ephemeralContainers{{{EPHEMERAL}}}":
            return
        if (about.get("apiVersion") or "").startswith(f"{CHAOS_MESH_GROUP}/"):
            return
        with self._lock:
            if count <= self._counted.get(name, 0):
                return
            self._counted[name] = count
            self.occurrences.append(
                Occurrence(
                    time_ns=_time_of(found, series),
                    type=found.get("type") or "Normal",
                    reason=found.get("reason") or "",
                    kind=about.get("kind") or "",
                    name=self._plain(about),
                    service=self._owner(about),
                    message=(found.get("message") or "").strip(),
                    count=count,
                )
            )

    def _plain(self, about: Mapping[str, Any]) -> str:
        stub = {"kind": about.get("kind") or "", "metadata": {"name": about.get("name") or ""}}
        return self._objects.shown(stub)["metadata"]["name"]

    def _owner(self, about: Mapping[str, Any]) -> str | None:
        kind, name = about.get("kind") or "", self._plain(about)
        if (kind, name) in self._owners:
            return self._owners[(kind, name)]
        # an event may come before its object, or name one that is not watched: its name begins with the workload's
        best = [service for service in self._services if name == service or name.startswith(f"{service}-")]
        return max(best, key=len) if best else None


def _time_of(event: Mapping[str, Any], series: Mapping[str, Any]) -> int:
    """Return when the event happened.

    Most stamps have whole seconds; then the moment of arrival is the better one, if it lies within that second or
    just after it.
    """
    fine = series.get("lastObservedTime") or event.get("eventTime")
    if fine and "." in fine:
        return parse_rfc3339_ns(fine)
    stamp = event.get("lastTimestamp") or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    now_ns = time.time_ns()
    if not stamp:
        return now_ns
    second_ns = parse_rfc3339_ns(stamp)
    return now_ns if second_ns <= now_ns < second_ns + 2 * SECOND_NS else second_ns


_LOG_PAUSE_S = 0.3


class LogStreams:
    """Follows every container of every pod of a namespace, one thread and one connection each.

    Files are `<folder>/<pod>/<container>/<restart>.log`, with the container runtime's stamps.
    """

    def __init__(self, api: Api, namespace: str, folder: Path):
        self._api, self._namespace, self._folder = api, namespace, folder
        self._streams: dict[tuple[str, str, int], _Stream] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def pod_changed(self, pod: Object) -> None:
        """Begin to follow containers that have started since the last call, and those that have ended already."""
        name = pod["metadata"]["name"]
        with self._lock:
            for status in container_statuses(pod):
                restart, state = status["restartCount"], status.get("state", {})
                if status.get("lastState", {}).get("terminated"):
                    # a container that waits in a back-off still counts as the run that ended
                    ended = restart if "waiting" in state else restart - 1
                    self._follow(name, status["name"], max(ended, 0), previous=True)
                if "running" in state or "terminated" in state:
                    self._follow(name, status["name"], restart, previous=False)

    def _follow(self, pod: str, container: str, restart: int, *, previous: bool) -> None:
        key = (pod, container, restart)
        known = self._streams.get(key)
        if known is not None:
            if previous:
                known.finish()
            return
        if self._ended.is_set():
            return
        path = self._folder / pod / container / f"{restart}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._streams[key] = _Stream(self._api, self._namespace, pod, container, path, self._ended, previous)

    def stop(self) -> None:
        """Stop following."""
        self._ended.set()


class _Stream:
    """One run of one container."""

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, path: Path, ended: threading.Event, previous: bool
    ):
        self._api, self._container, self._path = api, container, path
        self._where = f"{path_of('Pod', namespace, pod)}/log"
        self._ended, self._over = ended, threading.Event()
        self._last = ""
        self._previous = previous
        if previous:
            self._over.set()
        self.thread = threading.Thread(target=self._read, name=f"logs-{pod}", daemon=True)
        self.thread.start()

    @property
    def is_finishing(self) -> bool:
        """Whether the container has ended, so that reading ends soon."""
        return self._over.is_set()

    def finish(self) -> None:
        """Take note that another run of the container has begun: what is left is read from the previous log."""
        if not self._over.is_set():
            self._previous = True
            self._over.set()

    def _read(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._ended.is_set():
                was_over = self._over.is_set()
                query: dict[str, Any] = {"container": self._container, "timestamps": True}
                query["previous" if was_over and self._previous else "follow"] = True
                if self._last:
                    query["sinceTime"] = self._last
                seen = self._last
                try:
                    for line in self._api.stream(self._where, query):
                        self._write(file, line, seen)
                except NotFound:
                    return
                except PlatformError:
                    # no container of that run any more, or none yet
                    if was_over:
                        return
                if was_over or self._is_gone():
                    return
                self._ended.wait(_LOG_PAUSE_S)

    def _is_gone(self) -> bool:
        """Say whether the container of this run will print nothing more."""
        try:
            pod = self._api.get(self._where.removesuffix("/log"))
        except PlatformError:
            return not self._ended.wait(_LOG_PAUSE_S) and self._over.is_set()
        for container in container_statuses(pod):
            if container["name"] == self._container:
                if container["restartCount"] > int(self._path.stem):
                    self._previous = True
                    self._over.set()
                    return False
                if "terminated" in container.get("state", {}):
                    self._over.set()
                    return False
        return False

    def _write(self, file: Any, line: bytes, seen: str) -> None:
        """Append a line unless an earlier connection has brought it: `sinceTime` knows whole seconds only."""
        stamp, space, text = line.partition(b" ")
        if not space or len(stamp) < 20 or stamp.decode(errors="replace") <= seen:
            return
        self._last = stamp.decode()
        file.write(stamp + b" stdout F " + text.rstrip(b"\r") + b"\n")
