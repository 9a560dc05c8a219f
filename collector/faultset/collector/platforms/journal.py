"""What undoes a change: pure functions from the state before and the change to a list of undo operations.

An undo operation is a dict with a `verb`:

- `{"verb": "patch", "kind", "name", "change"}` merge patch that brings the prior values back
- `{"verb": "apply", "object"}` create the object again; one of that name gets its content
- `{"verb": "release-claim", "volume"}` drop a PersistentVolume's claimRef, so that a new claim can bind it
- `{"verb": "exec", "labels", "argv"}` run a command in the pod that carries the labels by then
- `{"verb": "copy-secret", "name", "key", "from": [secret, key]}` give a key of a Secret the text of another one
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
from faultset.core.json_text import read_json_lines

UndoOperation = dict[str, Any]

_SERVER_FIELDS = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink")
_CONTENT = ("spec", "data", "binaryData", "stringData", "type")
_ASSIGNED = {"Service": ("clusterIP", "clusterIPs"), "PersistentVolumeClaim": ("volumeName",)}
"""Fields of `spec` that the cluster fills in, and that may differ after an object was made again."""


def merge(target: Any, change: Any) -> Any:
    """Apply an RFC 7386 merge patch and return the result; neither argument is changed."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def merge_patch(current: Any, wanted: Any) -> dict[str, Any]:
    """Return the merge patch (RFC 7386) that makes one object of another; lists are replaced as a whole.

    >>> merge_patch({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4, "d": 3}})
    {'a': None, 'b': {'c': 4}}
    """
    change: dict[str, Any] = {key: None for key in current if key not in wanted}
    for key, value in wanted.items():
        before = current.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                change[key] = inner
        elif value != before or key not in current:
            change[key] = copy.deepcopy(value)
    return change


def reverse_change(current: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns `merge(current, change)` back into `current`.

    Fields that the change added come back as null, lists as a whole.
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
    """Return what undoes `change` on the object `current`."""
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
    """Return what undoes the deletion of `current`.

    A pod needs nothing, its owner replaces it. A claim needs its volume released first, because a volume
    remembers the uid of the claim that it was bound to and refuses any other.
    """
    if current["kind"] == "Pod":
        return []
    restored = copy.deepcopy(dict(current))
    restored.pop("status", None)
    for field in _SERVER_FIELDS:
        restored["metadata"].pop(field, None)
    operations: list[UndoOperation] = []
    if current["kind"] == "PersistentVolumeClaim":
        volume = current.get("spec", {}).get("volumeName")
        if volume:
            operations.append({"verb": "release-claim", "volume": volume})
    operations.append({"verb": "apply", "object": restored})
    return operations


def restoring_change(current: Mapping[str, Any], former: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that gives an object the content and labels of a former one of its kind and name.

    >>> service = {"kind": "Service", "metadata": {}, "spec": {"clusterIP": "10.0.0.2", "ports": [1]}}
    >>> restoring_change(service, {**service, "spec": {"clusterIP": "10.0.0.1", "ports": [2]}})
    {'spec': {'ports': [2]}}
    """
    return merge_patch(_content(current), _content(former))


def assigned_fields(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an object's spec that the cluster has filled in, such as an address or a volume."""
    spec = found.get("spec", {})
    return {key: spec[key] for key in _ASSIGNED.get(found["kind"], ()) if key in spec}


def _content(found: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {key: found[key] for key in _CONTENT if found.get(key)}
    if "spec" in content:
        content["spec"] = {key: value for key, value in found["spec"].items() if key not in assigned_fields(found)}
    return {**content, "metadata": {"labels": found["metadata"].get("labels") or {}}}


def undo_of_exec(labels: Mapping[str, str], argv: Sequence[str]) -> list[UndoOperation]:
    """Return the operation that runs `argv` in whichever pod carries `labels` when the undo comes."""
    return [{"verb": "exec", "labels": dict(labels), "argv": list(argv)}]


def undo_of_secret(changed: SecretKey, copied_from: SecretKey) -> list[UndoOperation]:
    """Return what gives a key of a Secret the text of another key, which no journal holds."""
    return [{"verb": "copy-secret", "name": changed.secret, "key": changed.key, "from": [*copied_from]}]


def undo_of_impairment(pod: str) -> list[UndoOperation]:
    """Return what lifts the impairment of `pod`."""
    return [{"verb": "lift", "pod": pod}]


class Journal:
    """An append-only file of JSON lines, flushed and synced line by line.

    Parameters
    ----------
    path
        The file; lines that are there already are read, and a torn last line is ignored.
    durable
        Wait after every line until the disk has it. What is only in memory need not outlive the process.
    """

    def __init__(self, path: Path, *, durable: bool = True):
        self.path = path
        self._durable = durable
        self.records: list[dict[str, Any]] = read_json_lines(path) if path.exists() else []
        self._next = 1 + max((record["seq"] for record in self.records), default=0)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

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
        """Record an intent before the body runs and its outcome after.

        Parameters
        ----------
        verb, args
            What is about to be done.
        undo
            What undoes it; empty or None when nothing does or nothing has to.
        visible
            Strings that the change itself shows to an operator of the application.
        """
        seq, self._next = self._next, self._next + 1
        intent = {"seq": seq, "state": "intent", "time_ns": time.time_ns(), "verb": verb, "args": dict(args)}
        self._write({**intent, "inverse": list(undo or []), "visible": list(visible)})
        try:
            yield seq
        except BaseException as error:
            self._write({"seq": seq, "state": "failed", "time_ns": time.time_ns(), "error": str(error)})
            raise
        self._write({"seq": seq, "state": "done", "time_ns": time.time_ns()})

    def note(self, what: str, visible: Sequence[str] = (), **details: Any) -> None:
        """Record something that changes nothing, such as the beginning of a phase; `visible` as in `operation`."""
        seq, self._next = self._next, self._next + 1
        record = {"seq": seq, "state": "note", "time_ns": time.time_ns(), "verb": what, "args": details}
        self._write({**record, "visible": list(visible)})

    def undone(self, seq: int) -> None:
        """Record that an operation has been undone."""
        self._write({"seq": seq, "state": "undone", "time_ns": time.time_ns()})

    def accept(self) -> None:
        """Let all changes so far stay: nothing of them is undone."""
        for seq, _ in self.open_undo_operations():
            self.undone(seq)

    def open_undo_operations(self) -> list[tuple[int, list[UndoOperation]]]:
        """Return the operations that are still to be undone, newest first, each with what undoes it.

        An operation that failed or has no end counts too: it may have happened.
        """
        return open_undo_operations(self.records)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_undo_operations(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[UndoOperation]]]:
    """Return `(seq, undo operations)` of what nothing in `records` has undone, newest first."""
    undone = {record["seq"] for record in records if record["state"] == "undone"}
    intents = [record for record in records if record["state"] == "intent" and record["inverse"]]
    return [(record["seq"], list(record["inverse"])) for record in reversed(intents) if record["seq"] not in undone]
