"""The verbs that change something, each with its undo operation in the journal before it acts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.api.impairments import Impairment, impairment_record
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.journal.journal import Journal
from faultset.collector.platforms.journal.undo_operations import (
    undo_of_delete,
    undo_of_exec,
    undo_of_impairment,
    undo_of_patch,
    undo_of_secret,
)
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import SecretKey, encoded
from faultset.core.errors import PlatformError


class JournaledObjects(ABC):
    """Patches and deletes objects, and changes Secrets.

    Parameters
    ----------
    app
        Whose label tells which workload a pod belongs to.
    journal
        Flushed to disk before each operation.
    """

    def __init__(self, app: AppSpec, journal: Journal):
        self.app = app
        self._journal = journal

    @abstractmethod
    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound."""

    @abstractmethod
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Apply a merge patch; not journaled."""

    @abstractmethod
    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        """Delete an object; not journaled."""

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "change": change}
        shown = [name, *(change.get("data") or ()), *_leaves(change)]
        with self._journal.operation("patch", args, undo_of_patch(current, change), shown):
            self._patch(kind, name, change)
        return self.get(kind, name)

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo applies it again (nothing for pods, which their owner replaces)."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "grace_period_s": grace_period_s}
        with self._journal.operation("delete", args, undo_of_delete(current), [name, *_leaves(current.get("spec"))]):
            self._delete(kind, name, grace_period_s)

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Give a key of a Secret another text; see `SecretEditor`. The journal holds the names and no text."""
        if self._secret_text(changed) != self._secret_text(copied_from):
            raise PlatformError(
                f"key {changed.key} of Secret {changed.secret} is not what key {copied_from.key} of Secret "
                f"{copied_from.secret} is, so that it could not be brought back; name a key with the same text"
            )
        args = {"name": changed.secret, "key": changed.key}
        with self._journal.operation("change-secret", args, undo_of_secret(changed, copied_from), [changed.secret]):
            self._patch("Secret", changed.secret, {"data": {changed.key: encoded(text)}})

    def _secret_text(self, place: SecretKey) -> str:
        data = self.get("Secret", place.secret).get("data") or {}
        if place.key not in data:
            raise PlatformError(f"Secret {place.secret} has no key {place.key}; it has {', '.join(data) or 'none'}")
        return data[place.key]


class JournaledCommands(JournaledObjects):
    """Runs commands in pods as well; see `CommandExecutor`."""

    @abstractmethod
    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError when it fails."""
        found = self.get("Pod", pod)
        operations = undo_of_exec(self._workload_labels(found), undo) if undo is not None else None
        visible = [pod, *_leaves(found["spec"])]
        with self._journal.operation("exec", {"pod": pod, "argv": list(argv)}, operations, visible):
            return self.run_command(pod, argv)

    def _workload_labels(self, pod: Object) -> dict[str, str]:
        labels = pod["metadata"].get("labels") or {}
        key = self.app.label_key
        return {key: labels[key]} if key in labels else dict(labels)


class JournaledKills(JournaledObjects):
    """Kills the processes of containers as well; see `ContainerKiller`."""

    @abstractmethod
    def _kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; not journaled."""

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; its restart policy decides what follows."""
        found = self.get("Pod", pod)
        with self._journal.operation("kill", {"pod": pod}, None, [pod]):
            self._kill(found, found["spec"]["containers"][0]["name"])


class JournaledImpairments(JournaledObjects):
    """Impairs the network of pods as well; see `NetworkImpairer`."""

    @abstractmethod
    def _impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair the packets of a pod; not journaled."""

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until undone; the impairment ends by itself when the collector dies."""
        found = self.get("Pod", pod)
        args = {"pod": pod, **impairment_record(impairment)}
        with self._journal.operation("impair", args, undo_of_impairment(pod), [pod]):
            self._impair(found, impairment)


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
