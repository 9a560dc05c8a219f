"""How undo operations of the journal are performed on a local platform."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.journal.undo import UndoExecutor
from faultset.collector.platforms.local.control_plane.control_plane import ControlPlane, PodNetworks


class LocalUndoExecutor(UndoExecutor):
    """Performs inverse acts on the objects in memory; whatever is due then happens at once.

    Parameters
    ----------
    run
        Runs a command in the main container of a pod.
    """

    timeout_s = 20.0
    pause_s = 0.1

    def __init__(self, plane: ControlPlane, *, run: Callable[[str, Sequence[str]], str]):
        self._plane, self._run_command = plane, run

    def _find(self, kind: str, name: str) -> Object | None:
        self._plane.check()
        with self._plane.lock:
            return self._plane.cluster.store.find(kind, name)

    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        self._plane.check()
        with self._plane.lock:
            return self._plane.cluster.store.list(kind, labels)

    def _create(self, wanted: Mapping[str, Any]) -> bool:
        with self._plane.lock:
            store = self._plane.cluster.store
            if store.find(wanted["kind"], wanted["metadata"]["name"]) is not None:
                return False
            store.create(wanted)
            self._plane.settle()
            return True

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        with self._plane.lock:
            self._plane.cluster.store.patch(kind, name, change)
            self._plane.settle()

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        with self._plane.lock:
            store = self._plane.cluster.store
            for name in names:
                if store.find(kind, name) is not None:
                    store.delete(kind, name, grace_period_s=0)
            self._plane.settle()

    def _run(self, pod: str, argv: Sequence[str]) -> None:
        self._run_command(pod, argv)

    def _lift(self, pod: str) -> None:
        PodNetworks(self._plane).lift(pod)
