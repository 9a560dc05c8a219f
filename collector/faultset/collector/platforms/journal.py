"""The journal of changes, and the pure functions that compute the undo operations of a change.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faultset.collector.spec.credentials import SecretKey
from faultset.core.files import read_json_lines

UndoOperation = dict[str, Any]

SERVER_FIELDS = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
"""Fields of `metadata` that only the API server sets."""
_CONTENT_FIELDS = ("spec", "data", "binaryData", "stringData", "type")
_ASSIGNED_FIELDS = {"Service": ("clusterIP", "clusterIPs"), "PersistentVolumeClaim": ("volumeName",)}
"""Fields of `spec` that the cluster sets and that may differ after an object was recreated."""


def merge(target: Any, change: Any) -> Any:
    """Return the result of an RFC 7386 merge patch; the arguments are not changed."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def merge_patch(current: Any, target: Any) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that turns one object into another; lists are replaced as a whole.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4, "d": 3}})
    {'a': None, 'b': {'c': 4}}
    """
    change: dict[str, Any] = {key: None for key in current if key not in target}
    for key, value in target.items():
        before = current.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                change[key] = inner
        elif value != before or key not in current:
            change[key] = copy.deepcopy(value)
    return change


def reverse_change(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `merge(current, change)` back into `current`.

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


def undo_of_patch(current: Mapping[str, Any], change: Mapping[str, Any]) -> list[UndoOperation]:
    """Return the operations that undo `change` on the object `current`."""
    metadata = current["metadata"]
    return [
        {
            "verb": "patch",
            "kind": current["kind"],
            "name": metadata["name"],
            "change": reverse_change(current, change),
        }
    ]


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
    if current["kind"] == "PersistentVolumeClaim":
        volume = current.get("spec", {}).get("volumeName")
        if volume:
            operations.append({"verb": "release-claim", "volume": volume})
    operations.append({"verb": "apply", "object": restored})
    return operations


def restoring_change(current: Mapping[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that restores the content and labels of an earlier object of the same name.

    >>> service = {"kind": "Service", "metadata": {}, "spec": {"clusterIP": "10.0.0.2", "ports": [1]}}
    >>> restoring_change(service, {**service, "spec": {"clusterIP": "10.0.0.1", "ports": [2]}})
    {'spec': {'ports': [2]}}
    """
    return merge_patch(_extract_content(current), _extract_content(earlier))


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


def undo_of_exec(labels: Mapping[str, str], argv: Sequence[str]) -> list[UndoOperation]:
    """Return the operation that runs `argv` in the newest pod with `labels`."""
    return [{"verb": "exec", "labels": dict(labels), "argv": list(argv)}]


def undo_of_secret(changed: SecretKey, copied_from: SecretKey) -> list[UndoOperation]:
    """Return the operation that copies a key back from another Secret; the journal never contains its text."""
    return [{"verb": "copy-secret", "name": changed.secret, "key": changed.key, "from": [*copied_from]}]


def undo_of_impairment(pod: str) -> list[UndoOperation]:
    """Return the operation that lifts the impairment of `pod`."""
    return [{"verb": "lift", "pod": pod}]


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
        verb, args
            The operation.
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
        """Record that an operation has been undone."""
        self._write({"seq": seq, "state": "undone", "time_ns": time.time_ns()})

    def accept(self) -> None:
        """Mark all changes so far as undone, so that `undo` leaves them in place."""
        for seq, _ in self.open_undo_operations():
            self.mark_undone(seq)

    def open_undo_operations(self, scope: str | None = None) -> list[tuple[int, list[UndoOperation]]]:
        """Return `(seq, undo operations)` of operations that are not undone yet, newest first.

        Failed and unfinished operations are included, since they may have taken effect.

        Parameters
        ----------
        scope
            Return only operations of this scope; all by default.
        """
        if scope is None:
            return open_undo_operations(self.records)
        in_scope = {record["seq"] for record in self.records if record.get("scope") == scope}
        return open_undo_operations([record for record in self.records if record["seq"] in in_scope])

    def discard(self, count: int) -> int:
        """Drop the first `count` records from memory, except operations that are not undone yet.

        Returns how many of these records remain. The file keeps all records.
        """
        open_operations = {seq for seq, _ in self.open_undo_operations()}
        needed = [
            record
            for record in self.records[:count]
            if record["state"] == "intent" and record["seq"] in open_operations
        ]
        self.records[:count] = needed
        return len(needed)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_undo_operations(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[UndoOperation]]]:
    """Return `(seq, undo operations)` of operations in `records` that are not undone yet, newest first."""
    undone = {record["seq"] for record in records if record["state"] == "undone"}
    intents = [record for record in records if record["state"] == "intent" and record["inverse"]]
    return [(record["seq"], list(record["inverse"])) for record in reversed(intents) if record["seq"] not in undone]
