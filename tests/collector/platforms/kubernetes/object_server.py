"""An API server in memory: objects by path, with versions, preconditions and definitions of custom resources."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from faultset.collector.platforms.objects import merge

_PATH = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+)(?=/))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?")
_BUILT_IN = ("v1", "apps", "rbac.authorization.k8s.io", "storage.k8s.io", "apiextensions.k8s.io")
DEFINITIONS = "customresourcedefinitions"


class ObjectServer:
    """Answers as a cluster does whose controllers do nothing, and remembers what was changed.

    Parameters
    ----------
    refused, broken
        Raised to answer with an error, and to end an answer early.

    Attributes
    ----------
    changes
        Verb, plural and name of every change, in order.
    before
        Called with the same before each request is answered.
    removal_s
        How long a namespace that was deleted is still there, with all that is in it.
    """

    def __init__(self, refused: Callable[[int, Any], Exception], broken: Callable[[bytes], Exception]) -> None:
        self._refused, self._broken = refused, broken
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.changes: list[tuple[str, str, str]] = []
        self.before: Callable[[str, str, str], None] = lambda method, plural, name: None
        self.removal_s = 0.0
        self._ends_s: dict[str, float] = {}
        self._version = 0

    def __call__(self, method: str, path: str, query: dict[str, list[str]], body: bytes) -> Any:
        found = _PATH.fullmatch(path)
        assert found is not None, path
        root, namespace, plural, name, _ = found.groups()
        sent = json.loads(body) if body else {}
        name = name or (sent.get("metadata", {}).get("name") if method == "POST" else None) or ""
        self.before(method, plural, name)
        self._remove_namespaces()
        self._check_served(root, plural, path)
        if method != "GET":
            self.changes.append((method, plural, name))
        key = (plural, namespace or "", name)
        match method:
            case "GET" if "watch" in query:
                raise self._broken(b"")
            case "GET" if name:
                return self._existing(key)
            case "GET":
                return self._listed(plural, namespace, query)
            case "POST":
                if key in self.objects:
                    raise self._refusal(409, f"{plural} {name} exists already")
                return self.put(plural, sent, namespace or "")
            case "PATCH":
                is_apply = "fieldManager" in query and "force" in query
                return self.put(plural, sent if is_apply else merge(self._existing(key), sent), namespace or "")
        return self._delete(key, sent)

    def put(self, plural: str, wanted: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        """Store an object, with a new version."""
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", **wanted["metadata"], "resourceVersion": str(self._version)}
        made = {**wanted, "metadata": metadata}
        if plural == DEFINITIONS:
            made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        self.objects[plural, namespace, metadata["name"]] = made
        return made

    def named(self, plural: str) -> set[str]:
        """Return the names of all objects of a kind."""
        return {name for kind, _, name in self.objects if kind == plural}

    def _check_served(self, root: str, plural: str, path: str) -> None:
        group = root.split("/")[2]
        if group not in _BUILT_IN and f"{plural}.{group}" not in self.named(DEFINITIONS):
            raise self._refusal(404, f"{path}: the server could not find the requested resource")

    def _existing(self, key: tuple[str, str, str]) -> dict[str, Any]:
        if key not in self.objects:
            raise self._refusal(404, f"{key[0]} {key[2]} not found")
        return self.objects[key]

    def _listed(self, plural: str, namespace: str | None, query: dict[str, list[str]]) -> dict[str, Any]:
        wanted = [one.partition("=") for one in query.get("labelSelector", [""])[0].split(",") if one]
        items = [
            one
            for (kind, place, _), one in self.objects.items()
            if kind == plural and namespace in (None, place) and _has_labels(one, wanted)
        ]
        return {"items": items, "metadata": {"resourceVersion": str(self._version)}}

    def _delete(self, key: tuple[str, str, str], sent: dict[str, Any]) -> dict[str, Any]:
        plural, _, name = key
        if not name:
            return {}
        metadata = self._existing(key)["metadata"]
        for field, value in sent.get("preconditions", {}).items():
            if metadata[field] != value:
                raise self._refusal(409, f"Precondition failed: {field} in precondition: {value}")
        if plural == "namespaces":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._ends_s.setdefault(name, time.monotonic() + self.removal_s)
            self._remove_namespaces()
        else:
            del self.objects[key]
        return {}

    def _remove_namespaces(self) -> None:
        for name in [name for name, end_s in self._ends_s.items() if time.monotonic() >= end_s]:
            self._ends_s.pop(name, None)
            self.objects.pop(("namespaces", "", name), None)
            self.objects = {kept: one for kept, one in list(self.objects.items()) if kept[1] != name}

    def _refusal(self, status: int, message: str) -> Exception:
        return self._refused(status, {"kind": "Status", "message": message, "code": status})


def _has_labels(found: dict[str, Any], wanted: list[tuple[str, str, str]]) -> bool:
    labels = found["metadata"].get("labels") or {}
    return all(key in labels and (not sign or labels[key] == value) for key, sign, value in wanted)
