"""The verbs that change something, with their inverse in the journal before they act; the same on every platform."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.platform import Impairment, Object
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.journal.undo_operations import (
    inverse_of_delete,
    inverse_of_exec,
    inverse_of_impairment,
    inverse_of_patch,
)
from faultset.collector.spec.app import AppSpec


class JournaledVerbs(ABC):
    """Writes the intent and its inverse, then lets the platform act.

    Parameters
    ----------
    app
        Whose label tells which workload a pod belongs to.
    journal
        Flushed to disk before each act.
    """

    def __init__(self, app: AppSpec, journal: Journal):
        self.app = app
        self._journal = journal

    @abstractmethod
    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""

    @abstractmethod
    def run_in(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""

    @abstractmethod
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None: ...

    @abstractmethod
    def _kill(self, pod: Object, container: str) -> None: ...

    @abstractmethod
    def _impair(self, pod: Object, impairment: Impairment) -> None: ...

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "change": change}
        with self._journal.act("patch", args, inverse_of_patch(current, change), [name, *_leaves(change)]):
            self._patch(kind, name, change)
        return self.get(kind, name)

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "grace_period_s": grace_period_s}
        with self._journal.act("delete", args, inverse_of_delete(current), [name, *_leaves(current.get("spec"))]):
            self._delete(kind, name, grace_period_s)

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError when it fails."""
        found = self.get("Pod", pod)
        inverse = inverse_of_exec(self._workload_labels(found), undo) if undo is not None else None
        visible = [pod, *_leaves(found["spec"])]
        with self._journal.act("exec", {"pod": pod, "argv": list(argv)}, inverse, visible):
            return self.run_in(pod, argv)

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        found = self.get("Pod", pod)
        with self._journal.act("kill", {"pod": pod}, None, [pod]):
            self._kill(found, found["spec"]["containers"][0]["name"])

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Disturb all that the pod sends until undone; the lease expires by itself when the collector dies."""
        found = self.get("Pod", pod)
        args = {"pod": pod, **described(impairment)}
        with self._journal.act("impair", args, inverse_of_impairment(pod), [pod]):
            self._impair(found, impairment)

    def _workload_labels(self, pod: Object) -> dict[str, str]:
        labels = pod["metadata"].get("labels") or {}
        key = self.app.label_key
        return {key: labels[key]} if key in labels else dict(labels)


def described(impairment: Impairment) -> dict[str, Any]:
    """Return an impairment as the relay, the node agent and the journal write it."""
    return {"kind": type(impairment).__name__.lower(), **dataclasses.asdict(impairment)}


def _leaves(change: Any) -> Iterator[str]:
    """Yield the plain values in a change: an operator who looks at the object sees them."""
    if isinstance(change, Mapping):
        for value in change.values():
            yield from _leaves(value)
    elif isinstance(change, list | tuple):
        for value in change:
            yield from _leaves(value)
    elif change is not None:
        yield str(change)
