"""The journal of changes, the verbs of platforms that write to it before they act, and the undo.

An undo operation is a dict with a `verb`:

- `{"verb": "patch", "kind", "name", "change"}` apply a merge patch with the earlier values
- `{"verb": "apply", "object"}` create the object again, or restore its content
- `{"verb": "release-claim", "volume"}` remove a PersistentVolume's claimRef, so that a new claim can bind it
- `{"verb": "exec", "labels", "argv"}` run a command in the newest pod with the labels
- `{"verb": "copy-secret", "name", "key", "from": [secret, key]}` copy a key of one Secret to another
- `{"verb": "lift", "pod"}` end an impairment
"""

from __future__ import annotations

import copy
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from faultset.collector.platforms.base import EpisodePlatform
from faultset.collector.platforms.impairments import Impairment, encode_impairment
from faultset.collector.platforms.objects import ObjectNotFound, is_active, merge_patch, waits_in_back_off
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.credentials import SecretKey, encoded
from faultset.core.errors import PlatformError
from faultset.core.files import read_json_lines
from faultset.core.printable import count_text
from faultset.core.processes import poll_until
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

UndoOperation = dict[str, Any]

SERVER_FIELDS = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
"""Fields of `metadata` that only the API server sets."""
_CONTENT_FIELDS = ("spec", "data", "binaryData", "stringData", "type")
_ASSIGNED_FIELDS = {"Service": ("clusterIP", "clusterIPs"), "PersistentVolumeClaim": ("volumeName",)}
"""Fields of `spec` that the cluster sets and that may differ after an object was recreated."""


def reverse_change(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `merge_patch(current, change)` back into `current`.

    Fields that the change added become null; lists are restored as a whole.
    """
    reverse: dict[str, Any] = {}
    for key, value in change.items():
        before = current.get(key)
        if before is None:
            reverse[key] = None
        elif isinstance(before, Mapping) and isinstance(value, Mapping):
            reverse[key] = reverse_change(before, value)
        else:
            reverse[key] = copy.deepcopy(before)
    return reverse


def undo_of_delete(current: Mapping[str, Any]) -> list[UndoOperation]:
    """Return the operations that undo the deletion of `current`.

    A pod needs none, since its owner replaces it. A claim's volume must be released first, because the volume accepts
    only the uid of its previous claim.
    """
    if current["kind"] == "Pod":
        return []
    restored = copy.deepcopy(dict(current))
    restored.pop("status", None)
    for field in SERVER_FIELDS:
        restored["metadata"].pop(field, None)
    operations: list[UndoOperation] = []
    if current["kind"] == "PersistentVolumeClaim" and (volume := current.get("spec", {}).get("volumeName")):
        operations.append({"verb": "release-claim", "volume": volume})
    operations.append({"verb": "apply", "object": restored})
    return operations


def list_assigned_fields(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an object's spec that the cluster sets, such as an address or a volume."""
    spec = resource.get("spec", {})
    return {key: spec[key] for key in _ASSIGNED_FIELDS.get(resource["kind"], ()) if key in spec}


def _extract_content(resource: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {key: resource[key] for key in _CONTENT_FIELDS if resource.get(key)}
    if "spec" in content:
        assigned = list_assigned_fields(resource)
        content["spec"] = {key: value for key, value in resource["spec"].items() if key not in assigned}
    return {**content, "metadata": {"labels": resource["metadata"].get("labels") or {}}}


class Journal:
    """An append-only file of JSON lines, synced after each line if `durable`.

    Parameters
    ----------
    path
        The file. Existing lines are read; an incomplete last line is ignored.
    durable
        Whether to sync after every line; not needed if the changes end with the process.
    """

    def __init__(self, path: Path, *, durable: bool = True):
        self.path = path
        self._durable = durable
        self.records: list[dict[str, Any]] = read_json_lines(path) if path.exists() else []
        self._next = 1 + max((record["seq"] for record in self.records), default=0)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._scope: str | None = None

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Mark the operations of the block, so that they can be undone without the others."""
        before, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = before

    def _write(self, record: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
        if self._durable:
            os.fsync(self._file)
        self.records.append(record)

    @contextmanager
    def operation(
        self,
        verb: str,
        args: Mapping[str, Any],
        undo: Sequence[UndoOperation] | None = None,
        visible: Sequence[str] = (),
    ) -> Iterator[int]:
        """Record an intent before the body runs and its outcome afterwards.

        Parameters
        ----------
        undo
            Operations that undo it; empty or None if it needs no undo.
        visible
            Strings that the change makes visible to an engineer who looks at the application.
        """
        seq, self._next = self._next, self._next + 1
        intent = {"seq": seq, "state": "intent", "time_ns": time.time_ns(), "verb": verb, "args": dict(args)}
        scope = {} if self._scope is None else {"scope": self._scope}
        self._write({**intent, **scope, "inverse": list(undo or []), "visible": list(visible)})
        try:
            yield seq
        except BaseException as error:
            self._write({"seq": seq, "state": "failed", "time_ns": time.time_ns(), "error": str(error)})
            raise
        self._write({"seq": seq, "state": "done", "time_ns": time.time_ns()})

    def note(self, verb: str, visible: Sequence[str] = (), **details: Any) -> None:
        """Record an event that changes nothing, such as the start of a phase; `visible` as in `operation`."""
        seq, self._next = self._next, self._next + 1
        record = {"seq": seq, "state": "note", "time_ns": time.time_ns(), "verb": verb, "args": details}
        self._write({**record, "visible": list(visible)})

    def mark_undone(self, seq: int) -> None:
        self._write({"seq": seq, "state": "undone", "time_ns": time.time_ns()})

    def accept(self) -> None:
        """Mark all changes so far as undone, so that `undo` leaves them in place."""
        for seq, _ in self.open_undo_operations():
            self.mark_undone(seq)

    def open_undo_operations(self, scope: str | None = None) -> list[tuple[int, list[UndoOperation]]]:
        """Return `(seq, undo operations)` of operations that are not undone yet, newest first.

        Failed and unfinished operations are included, since they may have taken effect.
        """
        undone = {record["seq"] for record in self.records if record["state"] == "undone"}
        return [
            (record["seq"], list(record["inverse"]))
            for record in reversed(self.records)
            if record["state"] == "intent"
            and record["inverse"]
            and record["seq"] not in undone
            and scope in (None, record.get("scope"))
        ]

    def discard(self, count: int) -> int:
        """Drop the first `count` records from memory, except operations that are not undone yet.

        Returns how many of these records remain. The file keeps all records.
        """
        open_seqs = {seq for seq, _ in self.open_undo_operations()}
        needed = [row for row in self.records[:count] if row["state"] == "intent" and row["seq"] in open_seqs]
        self.records[:count] = needed
        return len(needed)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


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
        undo = {"verb": "patch", "kind": current["kind"], "name": name, "change": reverse_change(current, change)}
        with self.journal.operation("patch", args, [undo], visible):
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
        undo = {"verb": "copy-secret", "name": changed.secret, "key": changed.key, "from": [*copied_from]}
        with self.journal.operation("change-secret", args, [undo], [changed.secret]):
            self._patch("Secret", changed.secret, {"data": {changed.key: encoded(text)}})

    def exec(self, pod: str, argv: Sequence[str], *, undo: Sequence[str] | None = None) -> str:
        """Run a command in the pod's main container and return its output; raise PlatformError if it fails."""
        target = self.get("Pod", pod)
        labels = self._workload_labels(target)
        operations = None if undo is None else [{"verb": "exec", "labels": labels, "argv": [*undo]}]
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
        with self.journal.operation("impair", args, [{"verb": "lift", "pod": pod}], [pod]):
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
            self._restart_pods_in_back_off()
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

    def _restart_pods_in_back_off(self) -> None:
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
        change = merge_patch(_extract_content(current), _extract_content(original))
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
