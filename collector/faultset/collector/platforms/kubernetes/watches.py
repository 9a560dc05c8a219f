"""Record objects, events and logs of a namespace as they change; recording resumes after interruptions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faultset.collector.platforms.kubernetes.client import Api, Expired, NotFound, build_path
from faultset.collector.platforms.kubernetes.impairer import EPHEMERAL
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.platforms.objects import ChangeLog, EventRecord, container_statuses
from faultset.core.errors import PlatformError
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, event_time, parse_rfc3339_ns

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
_IGNORED_OBJECTS = {("ConfigMap", "kube-root-ca.crt")}
CHAOS_MESH_GROUP = "chaos-mesh.org"
"""API group whose events are not recorded, because they name the fault."""
_PAUSE_S = 0.5


class Watch:
    """Watches the objects of a kind in a thread; changes during an interruption are reported after it.

    Calls `on_change(kind, name, object)`; the object is None after deletion.
    """

    def __init__(self, objects: Objects, kind: str, on_change: Any):
        self.failure = ""
        self._objects, self._kind, self._on_change = objects, kind, on_change
        self._names: set[str] = set()
        self._ended = threading.Event()
        self._version = self._relist()
        self._thread = threading.Thread(target=self._follow, name=f"watch-{kind}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop reporting, without waiting for the thread."""
        self._ended.set()

    def _relist(self) -> str:
        items, version = self._objects.list_with_version(self._kind)
        names = {item["metadata"]["name"] for item in items}
        for removed in self._names - names:
            self._on_change(self._kind, removed, None)
        for item in items:
            self._on_change(self._kind, item["metadata"]["name"], item)
        self._names = names
        return version

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                for line in self._objects.watch(self._kind, self._version):
                    if self._ended.is_set():
                        return
                    self._process(json.loads(line))
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

    def _process(self, message: Mapping[str, Any]) -> None:
        resource = message["object"]
        if message["type"] == "ERROR":
            if resource.get("code") == 410:
                raise Expired(resource.get("message", "gone"))
            self._ended.wait(_PAUSE_S)
            return
        self._version = resource["metadata"]["resourceVersion"]
        if message["type"] == "BOOKMARK":
            return
        resource.setdefault("kind", self._kind)
        if not self._objects.contains(resource):
            return
        manifest = self._objects.to_manifest(resource)
        name = manifest["metadata"]["name"]
        if message["type"] == "DELETED":
            self._names.discard(name)
            self._on_change(self._kind, name, None)
        else:
            self._names.add(name)
            self._on_change(self._kind, name, manifest)


class Observer:
    """Records states of objects, events, and the workload that owns each object.

    Parameters
    ----------
    label_key
        Label that names the workload of an object.
    services
        Names of all workloads; an object without a valid label belongs to the workload with the same name, if any.
    pod_changed
        Called with every new state of a pod.
    """

    def __init__(self, objects: Objects, *, label_key: str, services: frozenset[str], pod_changed: Any):
        self.events: list[EventRecord] = []
        self.changes = ChangeLog(clock=time.time_ns, service_of=self._service_of)
        self._objects, self._label_key, self._services = objects, label_key, services
        self._pod_changed = pod_changed
        self._owners: dict[tuple[str, str], str] = {}
        self._event_counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._watches: list[Watch] = []

    def start(self) -> None:
        """Record the existing objects and start watching."""
        custom = () if self._objects.custom is None else (self._objects.custom.kind,)
        self._watches = [Watch(self._objects, kind, self._object_changed) for kind in (*WATCHED, *custom)]
        self._watches.append(Watch(self._objects, "Event", self._event_changed))

    def stop(self) -> None:
        for watch in self._watches:
            watch.end()

    def check(self) -> None:
        """Raise PlatformError if a watch has failed."""
        for watch in self._watches:
            if watch.failure:
                raise PlatformError(watch.failure)

    def service_of(self, kind: str, name: str) -> str | None:
        """Return the workload of an object, which may have been deleted."""
        return self._owners.get((kind, name))

    def service_of_pod(self, pod: str) -> str | None:
        """Return the workload of a pod, which may have been deleted."""
        return self._owners.get(("Pod", pod))

    def pods_seen(self) -> list[str]:
        """Return the names of all pods, including deleted ones."""
        return [name for kind, name in list(self._owners) if kind == "Pod"]

    def _service_of(self, resource: Mapping[str, Any]) -> str | None:
        label = (resource["metadata"].get("labels") or {}).get(self._label_key)
        if label in self._services:
            return label
        name = resource["metadata"]["name"]
        return name if name in self._services else None

    def _object_changed(self, kind: str, name: str, resource: Object | None) -> None:
        if (kind, name) in _IGNORED_OBJECTS:
            return
        with self._lock:
            if resource is not None:
                service = self._service_of(resource)
                if service is not None:
                    self._owners[(kind, name)] = service
            self.changes.record(kind, name, resource)
        if kind == "Pod" and resource is not None:
            self._pod_changed(resource)

    def _event_changed(self, kind: str, name: str, event: Object | None) -> None:
        if event is None:
            return
        series = event.get("series") or {}
        count = int(series.get("count") or event.get("count") or 1)
        reference = event.get("involvedObject") or {}
        if reference.get("fieldPath") == f"spec.ephemeralContainers{{{EPHEMERAL}}}":
            return
        if (reference.get("apiVersion") or "").startswith(f"{CHAOS_MESH_GROUP}/"):
            return
        with self._lock:
            if count <= self._event_counts.get(name, 0):
                return
            self._event_counts[name] = count
            self.events.append(
                EventRecord(
                    time_ns=_event_time_ns(event),
                    type=event.get("type") or "Normal",
                    reason=event.get("reason") or "",
                    kind=reference.get("kind") or "",
                    name=self._manifest_name(reference),
                    service=self._owner(reference),
                    message=(event.get("message") or "").strip(),
                    count=count,
                )
            )

    def _manifest_name(self, reference: Mapping[str, Any]) -> str:
        stub = {"kind": reference.get("kind") or "", "metadata": {"name": reference.get("name") or ""}}
        return self._objects.to_manifest(stub)["metadata"]["name"]

    def _owner(self, reference: Mapping[str, Any]) -> str | None:
        kind, name = reference.get("kind") or "", self._manifest_name(reference)
        if (kind, name) in self._owners:
            return self._owners[(kind, name)]
        # an event may precede its object or concern an unwatched one; then the longest matching prefix decides
        candidates = [service for service in self._services if name == service or name.startswith(f"{service}-")]
        return max(candidates, key=len) if candidates else None


def _event_time_ns(event: Mapping[str, Any]) -> int:
    """Return when the event happened.

    Most timestamps are whole seconds. If the event arrives within that second or the next, the time of its arrival is
    more precise.
    """
    stamp = event_time(event)
    if stamp and "." in stamp:
        return parse_rfc3339_ns(stamp)
    now_ns = time.time_ns()
    if not stamp:
        return now_ns
    second_ns = parse_rfc3339_ns(stamp)
    return now_ns if second_ns <= now_ns < second_ns + 2 * SECOND_NS else second_ns


_LOG_PAUSE_S = 0.3


class LogStreams:
    """Reads the logs of all containers of a namespace, with one thread and connection per container.

    Writes files `<folder>/<pod>/<container>/<restart>.log` with the container runtime's timestamps.
    """

    def __init__(self, api: Api, namespace: str, folder: Path):
        self._api, self._namespace, self._folder = api, namespace, folder
        self._streams: dict[tuple[str, str, int], _Stream] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def pod_changed(self, pod: Object) -> None:
        """Start reading the logs of containers that have started or ended since the last call."""
        name = pod["metadata"]["name"]
        with self._lock:
            for status in container_statuses(pod):
                restart, state = status["restartCount"], status.get("state", {})
                if status.get("lastState", {}).get("terminated"):
                    # during a back-off, the restart count does not include the next run yet
                    last_run = restart if "waiting" in state else restart - 1
                    self._follow(name, status["name"], max(last_run, 0), previous=True)
                if "running" in state or "terminated" in state:
                    self._follow(name, status["name"], restart, previous=False)

    def _follow(self, pod: str, container: str, restart: int, *, previous: bool) -> None:
        key = (pod, container, restart)
        stream = self._streams.get(key)
        if stream is not None:
            if previous:
                stream.finish()
            return
        if self._ended.is_set():
            return
        path = self._folder / pod / container / f"{restart}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._streams[key] = _Stream(self._api, self._namespace, pod, container, path, self._ended, previous)

    def stop(self) -> None:
        self._ended.set()


class _Stream:
    """Reads the log of one run of a container."""

    def __init__(
        self, api: Api, namespace: str, pod: str, container: str, path: Path, stop: threading.Event, previous: bool
    ):
        self._api, self._container, self._path = api, container, path
        self._log_path = f"{build_path('Pod', namespace, pod)}/log"
        self._stop, self._run_ended = stop, threading.Event()
        self._last = ""
        self._previous = previous
        if previous:
            self._run_ended.set()
        self.thread = threading.Thread(target=self._read, name=f"logs-{pod}", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """Read the rest from the previous log, since the container has restarted."""
        if not self._run_ended.is_set():
            self._previous = True
            self._run_ended.set()

    def _read(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            while not self._stop.is_set():
                had_ended = self._run_ended.is_set()
                query: dict[str, Any] = {"container": self._container, "timestamps": True}
                query["previous" if had_ended and self._previous else "follow"] = True
                if self._last:
                    query["sinceTime"] = self._last
                last_stamp = self._last
                try:
                    for line in self._api.stream(self._log_path, query):
                        self._write(file, line, last_stamp)
                except NotFound:
                    return
                except PlatformError:
                    # the container of this run has not started or is gone
                    if had_ended:
                        return
                if had_ended or self._is_gone():
                    return
                self._stop.wait(_LOG_PAUSE_S)

    def _is_gone(self) -> bool:
        """Return whether the pod is gone, and note whether the container's run has ended."""
        try:
            pod = self._api.get(self._log_path.removesuffix("/log"))
        except PlatformError:
            return not self._stop.wait(_LOG_PAUSE_S) and self._run_ended.is_set()
        for container in container_statuses(pod):
            if container["name"] == self._container:
                if container["restartCount"] > int(self._path.stem):
                    self._previous = True
                    self._run_ended.set()
                elif "terminated" in container.get("state", {}):
                    self._run_ended.set()
                return False
        return False

    def _write(self, file: Any, line: bytes, last_stamp: str) -> None:
        """Append a line unless it was already read; `sinceTime` has a resolution of one second."""
        stamp, space, text = line.partition(b" ")
        if not space or len(stamp) < 20 or stamp.decode(errors="replace") <= last_stamp:
            return
        self._last = stamp.decode()
        file.write(stamp + b" stdout F " + text.rstrip(b"\r") + b"\n")
