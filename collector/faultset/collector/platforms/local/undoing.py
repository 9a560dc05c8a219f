"""The undo of a local platform: open inverses of the journal, newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faultset.collector.platforms.journal import Journal
from faultset.collector.platforms.local.control import ControlPlane
from faultset.collector.platforms.local.controllers.replica_sets import is_active
from faultset.datasets.errors import PlatformError

if TYPE_CHECKING:
    from faultset.collector.platforms.local.platform import LocalPlatform

BACK_OFF_REASONS = frozenset(
    {"CrashLoopBackOff", "RunContainerError", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"}
)
_PATIENCE_S = 20.0
_PAUSE_S = 0.1


def undo_all(platform: LocalPlatform, plane: ControlPlane, journal: Journal) -> None:
    """Perform every open inverse, mark each act that is undone, then restart pods that wait in a back-off.

    Raises
    ------
    PlatformError
        Some acts could not be undone; the others are, and these stay open.
    """
    problems: list[str] = []
    for seq, acts in journal.open_inverses():
        try:
            for act in acts:
                _perform(platform, plane, act)
        except PlatformError as error:
            problems.append(f"act {seq} ({acts[0]['verb']}): {error}")
        else:
            journal.undone(seq)
    _restart_waiting(plane)
    if problems:
        raise PlatformError(f"{len(problems)} acts could not be undone: {'; '.join(problems)}")


def _perform(platform: LocalPlatform, plane: ControlPlane, act: Mapping[str, Any]) -> None:
    match act["verb"]:
        case "patch":
            _patch(plane, act["kind"], act["name"], act["change"])
        case "apply":
            _apply(plane, act["object"])
        case "release-claim":
            _patch(plane, "PersistentVolume", act["volume"], {"spec": {"claimRef": None}})
        case "exec":
            _exec(platform, act["labels"], act["argv"])
        case "lift":
            with plane.lock:
                plane.impairments.pop(act["pod"], None)
                plane.publish_routes()
        case verb:
            raise PlatformError(f"the journal has an inverse {verb!r} that this release does not know")


def _patch(plane: ControlPlane, kind: str, name: str, change: Mapping[str, Any]) -> None:
    with plane.lock:
        if kind == "Pod" and plane.cluster.store.find(kind, name) is None:
            return
        plane.cluster.store.patch(kind, name, change)
        plane.settle()


def _apply(plane: ControlPlane, wanted: Mapping[str, Any]) -> None:
    """Create an object unless it exists; one that is being deleted is waited for."""
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        with plane.lock:
            current = plane.cluster.store.find(kind, name)
            if current is None:
                plane.cluster.store.create(wanted)
                plane.settle()
                return
            if not current["metadata"].get("deletionTimestamp"):
                return
        plane.check()
        if time.monotonic() > deadline:
            raise PlatformError(f'{kind} "{name}" is still being deleted after {_PATIENCE_S:g} s')
        time.sleep(_PAUSE_S)


def _exec(platform: LocalPlatform, labels: Mapping[str, str], argv: Sequence[str]) -> None:
    """Run a command in the newest pod of a workload, which may have to come up first."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        pods = [pod for pod in platform.list("Pod", labels) if is_active(pod)]
        try:
            if not pods:
                raise PlatformError(f"no pod carries the labels {dict(labels)}")
            platform.run_in(pods[-1]["metadata"]["name"], argv)
            return
        except PlatformError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _restart_waiting(plane: ControlPlane) -> None:
    with plane.lock:
        store = plane.cluster.store
        for pod in list(store.each("Pod")):
            statuses = pod.get("status", {}).get("containerStatuses", [])
            reasons = {status["state"].get("waiting", {}).get("reason") for status in statuses}
            if reasons & BACK_OFF_REASONS:
                store.delete("Pod", pod["metadata"]["name"], grace_period_s=0)
        plane.settle()
