"""How undo operations of the journal are performed on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.journal.undo import UndoExecutor
from faultset.collector.platforms.kubernetes.api.client import NotFound
from faultset.collector.platforms.kubernetes.api.objects import Objects


class ClusterUndoExecutor(UndoExecutor):
    """Performs inverse acts through the API server.

    Parameters
    ----------
    run
        Runs a command in the main container of a pod.
    lift
        Ends the impairment of a pod, by its name.
    """

    timeout_s = 60.0
    pause_s = 0.5

    def __init__(self, objects: Objects, *, run: Callable[[str, Sequence[str]], str], lift: Callable[[str], None]):
        self._objects, self._run_in, self._lift_of = objects, run, lift

    def _find(self, kind: str, name: str) -> Object | None:
        return self._objects.find(kind, name)

    def _list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        return self._objects.list(kind, labels)

    def _create(self, wanted: Mapping[str, Any]) -> bool:
        # an API server refuses a Service whose address is taken as invalid, before it sees that the Service exists
        if self._find(wanted["kind"], wanted["metadata"]["name"]) is not None:
            return False
        return self._objects.create(wanted)

    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        self._objects.patch(kind, name, change)

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(NotFound):
                self._objects.delete(kind, name, grace_period_s=0)

    def _run(self, pod: str, argv: Sequence[str]) -> None:
        self._run_in(pod, argv)

    def _lift(self, pod: str) -> None:
        self._lift_of(pod)
