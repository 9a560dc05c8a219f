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
from collections.abc import Mapping, Sequence
from typing import Any

from faultset.collector.spec.credentials import SecretKey

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
