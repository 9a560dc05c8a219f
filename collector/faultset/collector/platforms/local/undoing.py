"""How inverse acts of the journal are performed on a local platform."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faultset.collector.platforms.local.control import ControlPlane
from faultset.collector.platforms.local.controllers.replica_sets import is_active
from faultset.collector.platforms.local.network import Network
from faultset.datasets.errors import PlatformError

if TYPE_CHECKING:
    from faultset.collector.platforms.local.platform import LocalPlatform

BACK_OFF_REASONS = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
)
_PATIENCE_S = 20.0
_PAUSE_S = 0.1


class Undoer:
    """Performs inverse acts; each may be performed twice without harm."""

    def __init__(self, platform: LocalPlatform, plane: ControlPlane):
        self._platform, self._plane = platform, plane

    def perform(self, inverse: Mapping[str, Any]) -> None:
        """Perform one act; raise PlatformError when it is not possible now."""
        match inverse["verb"]:
            case "patch":
                self._patch(inverse["kind"], inverse["name"], inverse["change"])
            case "apply":
                self._apply(inverse["object"])
            case "release-claim":
                self._patch("PersistentVolume", inverse["volume"], {"spec": {"claimRef": None}})
            case "exec":
                self._exec(inverse["labels"], inverse["argv"])
            case "lift":
                Network(self._plane).lift(inverse["pod"])
            case verb:
                raise PlatformError(f"the journal has an inverse {verb!r} that this release does not know")

    def restart_waiting(self) -> None:
        """Delete pods that wait in a back-off; their owners replace them at once."""
        with self._plane.lock:
            store = self._plane.cluster.store
            for pod in list(store.each("Pod")):
                statuses = pod.get("status", {}).get("containerStatuses", [])
                reasons = {status["state"].get("waiting", {}).get("reason") for status in statuses}
                if reasons & BACK_OFF_REASONS:
                    store.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
            self._plane.settle()

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        with self._plane.lock:
            if kind == "Pod" and self._plane.cluster.store.find(kind, name) is None:
                return
            self._plane.cluster.store.patch(kind, name, change)
            self._plane.settle()

    def _apply(self, wanted: Mapping[str, Any]) -> None:
        """Create an object unless it exists; one that is being deleted is waited for."""
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with self._plane.lock:
                current = self._plane.cluster.store.find(kind, name)
                if current is None:
                    self._plane.cluster.store.create(wanted)
                    self._plane.settle()
                    return
                if not current["metadata"].get("deletionTimestamp"):
                    return
            self._plane.check()
            if time.monotonic() > deadline:
                raise PlatformError(f'{kind} "{name}" is still being deleted after {_PATIENCE_S:g} s')
            time.sleep(_PAUSE_S)

    def _exec(self, labels: Mapping[str, str], argv: Sequence[str]) -> None:
        """Run a command in the newest pod of a workload, which may have to come up first."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            pods = [pod for pod in self._platform.list("Pod", labels) if is_active(pod)]
            try:
                if not pods:
                    raise PlatformError(f"no pod carries the labels {dict(labels)}")
                self._platform.run_in(pods[-1]["metadata"]["name"], argv)
                return
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)
