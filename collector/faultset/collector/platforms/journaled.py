"""The base class of platforms: verbs that write to the journal before they act, and the undo."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import Impairment, encode_impairment
from faultset.collector.platforms.journal import (
    Journal,
    UndoOperation,
    restoring_change,
    undo_of_delete,
    undo_of_exec,
    undo_of_impairment,
    undo_of_patch,
    undo_of_secret,
)
from faultset.collector.platforms.objects import ObjectNotFound, is_active, waits_in_back_off
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import SecretKey, encoded
from faultset.core.errors import PlatformError
from faultset.core.printable import count_text
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object


class UndoFailed(PlatformError):
    """A change of an episode could not be undone; never attributed to a busy host."""


class JournaledObjects(ABC):
    """Objects of a cluster, with verbs that write their undo operations to the journal before they act.

    Subclasses implement primitives that do not write to the journal.

    Parameters
    ----------
    app
        Defines the label that names a pod's workload.
    journal
        Written to disk before each operation.
    """

    undo_timeout_s: float = 20.0
    """How long an undo waits for a pod to run or an object to be removed."""
    undo_pause_s: float = 0.1

    def __init__(self, app: AppSpec, journal: Journal):
        self.app = app
        self.journal = journal

    @abstractmethod
    def find(self, kind: str, name: str) -> Object | None:
        """Return a copy of one object, or None."""

    @abstractmethod
    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> Sequence[Object]:
        """Return copies of all objects of a kind with the labels."""

    @abstractmethod
    def run_command(self, pod: str, argv: Sequence[str]) -> str:
        """Run a command in the pod's main container and return its output; not journaled."""

    @abstractmethod
    def _create(self, manifest: Mapping[str, Any]) -> bool:
        """Create an object; return False if one of that name exists."""

    @abstractmethod
    def _patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Apply a merge patch; raise ObjectNotFound if the object is missing. Not journaled."""

    @abstractmethod
    def _delete(self, kind: str, name: str, grace_period_s: float | None) -> None:
        """Delete an object; raise ObjectNotFound if it is missing. Not journaled."""

    @abstractmethod
    def _kill(self, pod: Object, container: str) -> None:
        """Send SIGKILL to the main process of a container; not journaled."""

    @abstractmethod
    def _impair(self, pod: Object, impairment: Impairment) -> None:
        """Impair a pod, replacing an earlier impairment; not journaled."""

    @abstractmethod
    def _lift(self, pod: str) -> None:
        """End the impairment of a pod, if it has one."""

    def get(self, kind: str, name: str) -> Object:
        """Return a copy of one object; raise ObjectNotFound if it is missing."""
        match = self.find(kind, name)
        if match is None:
            raise ObjectNotFound(f'{kind} "{name}" not found')
        return match

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        """Apply a JSON merge patch (RFC 7386) and return the new object."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "change": change}
        visible = [name, *(change.get("data") or ()), *_yield_strings(change)]
        with self.journal.operation("patch", args, undo_of_patch(current, change), visible):
            self._patch(kind, name, change)
        return self.get(kind, name)

    def delete(self, kind: str, name: str, *, grace_period_s: float | None = None) -> None:
        """Delete an object; the undo recreates it, except for pods, which their owners replace."""
        current = self.get(kind, name)
        args = {"kind": kind, "name": name, "grace_period_s": grace_period_s}
        with self.journal.operation(
            "delete", args, undo_of_delete(current), [name, *_yield_strings(current.get("spec"))]
        ):
            self._delete(kind, name, grace_period_s)

    def change_secret(self, changed: SecretKey, text: str, *, copied_from: SecretKey) -> None:
        """Change a key of a Secret; the journal contains only the names."""
        if self._read_secret(changed) != self._read_secret(copied_from):
            raise PlatformError(
                f"key {changed.key} of Secret {changed.secret} differs from key {copied_from.key} of Secret "
                f"{copied_from.secret}, so the change could not be undone; choose a key with the same text"
            )
        args = {"name": changed.secret, "key": changed.key}
        with self.journal.operation("change-secret", args, undo_of_secret(changed, copied_from), [changed.secret]):
            self._patch("Secret", changed.secret, {"data": {changed.key: encoded(text)}})

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError if it fails."""
        target = self.get("Pod", pod)
        operations = undo_of_exec(self._workload_labels(target), undo) if undo is not None else None
        visible = [pod, *_yield_strings(target["spec"])]
        with self.journal.operation("exec", {"pod": pod, "argv": list(argv)}, operations, visible):
            return self.run_command(pod, argv)

    def kill(self, pod: str) -> None:
        """Send SIGKILL to the main process of the pod's container; the pod's restart policy applies."""
        target = self.get("Pod", pod)
        with self.journal.operation("kill", {"pod": pod}, None, [pod]):
            self._kill(target, target["spec"]["containers"][0]["name"])

    def impair(self, pod: str, impairment: Impairment) -> None:
        """Impair the pod until the undo; the impairment also ends if the collector stops running."""
        target = self.get("Pod", pod)
        args = {"pod": pod, **encode_impairment(impairment)}
        with self.journal.operation("impair", args, undo_of_impairment(pod), [pod]):
            self._impair(target, impairment)

    def undo(self, scope: str | None = None) -> None:
        """Undo the changes in the journal, newest first, then restart pods in back-off.

        Each undo is recorded immediately. If one fails, the others still run.

        Parameters
        ----------
        scope
            Undo only changes in this scope; all by default.

        Raises
        ------
        UndoFailed
            Some changes could not be undone; the next call retries them.
        """
        failures: list[str] = []
        try:
            for seq, operations in self.journal.open_undo_operations(scope):
                try:
                    for operation in operations:
                        self.execute_undo(operation)
                except PlatformError as error:
                    failures.append(f"operation {seq}: {error}")
                    continue
                self.journal.mark_undone(seq)
        finally:
            self._restart_waiting()
        if failures:
            changes = count_text(len(failures), "change")
            raise UndoFailed(f"{changes} could not be undone ({failures[0]}); run 'faultset recover'")

    def execute_undo(self, operation: UndoOperation) -> None:
        """Execute one undo operation; raise PlatformError if it fails. Repeating an operation is harmless."""
        match operation["verb"]:
            case "patch":
                self._patch_back(operation["kind"], operation["name"], operation["change"])
            case "apply":
                self._recreate(operation["object"])
            case "release-claim":
                self._patch("PersistentVolume", operation["volume"], {"spec": {"claimRef": None}})
            case "exec":
                self._run_in_newest(operation["labels"], operation["argv"])
            case "copy-secret":
                self._copy_secret(operation["name"], operation["key"], *operation["from"])
            case "lift":
                self._lift(operation["pod"])
            case verb:
                raise PlatformError(f"unknown undo operation {verb!r} in the journal; use the release that wrote it")

    def _belongs_to_app(self, pod: Object) -> bool:
        """Return whether the pod belongs to the application."""
        return True

    def _restart_waiting(self) -> None:
        """Delete pods in back-off, which their owners replace immediately."""
        for pod in self.list("Pod"):
            if waits_in_back_off(pod) and self._belongs_to_app(pod):
                self._remove("Pod", pod["metadata"]["name"])

    def _remove(self, kind: str, name: str) -> None:
        """Delete an object without a grace period, if it exists."""
        try:
            self._delete(kind, name, 0)
        except ObjectNotFound:
            return

    def _patch_back(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Patch an object; ignore a missing pod, since its replacement does not have the change."""
        try:
            self._patch(kind, name, change)
        except ObjectNotFound:
            if kind != "Pod":
                raise

    def _copy_secret(self, name: str, key: str, source: str, source_key: str) -> None:
        text = ((self.find("Secret", source) or {}).get("data") or {}).get(source_key)
        if text is None:
            raise PlatformError(f"Secret {name} cannot be restored, since Secret {source} has no key {source_key}")
        self._patch("Secret", name, {"data": {key: text}})

    def _recreate(self, manifest: Mapping[str, Any]) -> None:
        """Create an object, or restore its content if it already exists again.

        Waits while the old object is being deleted, and deletes an object whose content cannot be restored.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]

        def is_restored() -> bool:
            if self._create(manifest):
                return True
            current = self.find(kind, name)
            if current is not None and not current["metadata"].get("deletionTimestamp"):
                if self._restore_content(current, manifest):
                    return True
                self._remove(kind, name)
            return False

        if not poll_until(is_restored, timeout_s=self.undo_timeout_s, pause_s=self.undo_pause_s):
            raise PlatformError(f'{kind} "{name}" is still being deleted after {self.undo_timeout_s:g} s')

    def _restore_content(self, current: Object, original: Mapping[str, Any]) -> bool:
        """Restore the content of an object; return False if a field cannot be changed."""
        change = restoring_change(current, original)
        try:
            if change:
                self._patch(original["kind"], original["metadata"]["name"], change)
        except PlatformError:
            return False
        return True

    def _run_in_newest(self, labels: Mapping[str, str], argv: Sequence[str]) -> None:
        """Run a command in the newest pod of a workload; wait if no pod is running yet."""
        deadline = time.monotonic() + self.undo_timeout_s
        while True:
            pods = [pod for pod in self.list("Pod", labels) if is_active(pod)]
            try:
                if not pods:
                    raise PlatformError(f"no pod has the labels {dict(labels)}")
                # timestamps have a resolution of one second; the list ends with the newest of equally old pods
                newest = sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])[-1]
                self.run_command(newest["metadata"]["name"], argv)
                return
            except PlatformError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(self.undo_pause_s)

    def _read_secret(self, secret_key: SecretKey) -> str:
        secret, key = secret_key
        data = self.get("Secret", secret).get("data") or {}
        if key not in data:
            raise PlatformError(f"Secret {secret} must have the key {key}, but has {', '.join(data) or 'none'}")
        return data[key]

    def _workload_labels(self, pod: Object) -> dict[str, str]:
        labels = pod["metadata"].get("labels") or {}
        key = self.app.label_key
        return {key: labels[key]} if key in labels else dict(labels)


class JournaledPlatform(JournaledObjects, EpisodePlatform):
    """The base class of platforms: the verbs and undo of `JournaledObjects`, and `wait`."""

    poll_s: ClassVar[float] = 0.02

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until `condition` holds; after `timeout_s`, raise a PlatformError that names `what`."""

        def holds() -> bool:
            if condition():
                return True
            self._check_waiting()
            return False

        if not poll_until(holds, timeout_s=timeout_s, pause_s=self.poll_s):
            raise PlatformError(f"timed out after {timeout_s:g} s waiting for {what}; {self._describe_unready()}")

    def _check_waiting(self) -> None:
        """Raise PlatformError if further waiting is useless."""

    @abstractmethod
    def _describe_unready(self) -> str:
        """Return a sentence about the pods that are not ready."""


def _yield_strings(change: Any) -> Iterator[str]:
    """Yield the values in a change as strings, as an engineer sees them in the object."""
    if isinstance(change, Mapping):
        for value in change.values():
            yield from _yield_strings(value)
    elif isinstance(change, list | tuple):
        for value in change:
            yield from _yield_strings(value)
    elif change is not None:
        yield str(change)
