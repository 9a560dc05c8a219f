"""What containers print, followed from their start, written as a container runtime's log files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import container_statuses
from faultset.collector.platforms.kubernetes.api.client import Api, NotFound
from faultset.collector.platforms.kubernetes.api.kinds import path_of
from faultset.core.errors import PlatformError

_PAUSE_S = 0.3


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
                self._ended.wait(_PAUSE_S)

    def _is_gone(self) -> bool:
        """Say whether the container of this run will print nothing more."""
        try:
            pod = self._api.get(self._where.removesuffix("/log"))
        except PlatformError:
            return not self._ended.wait(_PAUSE_S) and self._over.is_set()
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
