"""How inverse acts of the journal are performed on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.kubernetes.access import NotFound
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.platforms.protocol import Object
from faultset.datasets.errors import PlatformError

BACK_OFF_REASONS = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
)
_PATIENCE_S = 60.0
_PAUSE_S = 0.5


class Undoer:
    """Performs inverse acts; each may be performed twice without harm.

    Parameters
    ----------
    run
        Runs a command in the main container of a pod.
    lift
        Ends the impairment of a pod, by its name.
    """

    def __init__(self, objects: Objects, *, run: Callable[[str, Sequence[str]], str], lift: Callable[[str], None]):
        self._objects, self._run, self._lift = objects, run, lift

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
                self._lift(inverse["pod"])
            case verb:
                raise PlatformError(f"the journal has an inverse {verb!r} that this release does not know")

    def restart_waiting(self, concerns: Callable[[Object], bool]) -> None:
        """Delete the pods in question that wait in a back-off; their owners replace them at once."""
        for pod in self._objects.list("Pod"):
            statuses = pod.get("status", {}).get("containerStatuses", [])
            reasons = {(status.get("state", {}).get("waiting") or {}).get("reason") for status in statuses}
            if reasons & BACK_OFF_REASONS and concerns(pod):
                try:
                    self._objects.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
                except NotFound:
                    continue

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        try:
            self._objects.patch(kind, name, change)
        except NotFound:
            if kind != "Pod":
                raise

    def _apply(self, wanted: Mapping[str, Any]) -> None:
        """Create an object unless it exists; one that is being deleted is waited for."""
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        deadline = time.monotonic() + _PATIENCE_S
        while not self._objects.create(wanted):
            current = self._objects.find(kind, name)
            if current is not None and not current["metadata"].get("deletionTimestamp"):
                return
            if time.monotonic() > deadline:
                raise PlatformError(f'{kind} "{name}" is still being deleted after {_PATIENCE_S:g} s')
            time.sleep(_PAUSE_S)

    def _exec(self, labels: Mapping[str, str], argv: Sequence[str]) -> None:
        """Run a command in the newest pod of a workload, which may have to come up first."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            pods = [pod for pod in self._objects.list("Pod", labels) if not pod["metadata"].get("deletionTimestamp")]
            pods.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
            try:
                if not pods:
                    raise PlatformError(f"no pod carries the labels {dict(labels)}")
                self._run(pods[-1]["metadata"]["name"], argv)
                return
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)
