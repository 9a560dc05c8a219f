"""The desired state of an application's objects, and how it differs from an earlier one. Pure functions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import Object, is_active

KINDS = ("Deployment", "StatefulSet", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim")
"""Kinds of objects that say what an application should be."""
_DESIRED = ("spec", "data", "stringData", "binaryData", "type")
_FREE = {
    "Deployment": (("spec", "strategy"),),
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs")),
    "PersistentVolumeClaim": (("spec", "volumeName"),),
}
"""What a repair may change: how pods are replaced, and what the cluster assigns."""
_FREE_ANNOTATIONS = (
    "kubectl.kubernetes.io/",
    "deployment.kubernetes.io/",
    "kubernetes.io/change-cause",
    "pv.kubernetes.io/",
)
_CONTAINER_FIELDS = ("image", "command", "args", "resources")

ObjectKey = tuple[str, str]


@dataclass(frozen=True)
class DesiredState:
    """What the objects of an application ask for.

    Attributes
    ----------
    objects
        Kind and name to the parts of the object that ask for something, without what a repair may change.
    """

    objects: Mapping[ObjectKey, Mapping[str, Any]]

    @classmethod
    def of(cls, platform: Platform) -> DesiredState:
        """Return the present desired state."""
        operator = platform.app.operator
        kinds = KINDS if operator is None else (*KINDS, operator.resource.kind)
        found = (one for kind in kinds for one in platform.list(kind))
        return cls({(one["kind"], one["metadata"]["name"]): _wanted(one) for one in found})

    def missing_in(self, later: DesiredState) -> list[ObjectKey]:
        """Return the objects that a later state has not."""
        return sorted(set(self.objects) - set(later.objects))

    def changes_to(self, later: DesiredState) -> list[str]:
        """Say what differs in a later state, a sentence for each place; objects that are missing are left out."""
        lines = [f"{kind} {name} is new" for kind, name in sorted(set(later.objects) - set(self.objects))]
        for key in sorted(set(self.objects) & set(later.objects)):
            kind, name = key
            for path, before, after in _differences(self.objects[key], later.objects[key]):
                if kind == "Secret":
                    before = after = "..."
                lines.append(f"{kind} {name}: {path} is {_short(after)}, was {_short(before)}")
        return lines


def pods_apart(platform: Platform) -> list[str]:
    """Say which running pods differ from the template of their workload in image, command or resources."""
    templates = {
        tuple(sorted((one["spec"]["selector"].get("matchLabels") or {}).items())): one["spec"]["template"]
        for kind in ("Deployment", "StatefulSet")
        for one in platform.list(kind)
    }
    lines = []
    for pod in platform.list("Pod"):
        labels = pod["metadata"].get("labels") or {}
        template = next((t for selector, t in templates.items() if set(selector) <= set(labels.items())), None)
        if template is not None and is_active(pod):
            wanted, present = (_containers(one["spec"]["containers"]) for one in (template, pod))
            for path, before, after in _differences(wanted, present):
                lines.append(f"Pod {pod['metadata']['name']}: {path} is {_short(after)}, wanted {_short(before)}")
    return lines


def _wanted(found: Object) -> dict[str, Any]:
    made = {key: copy.deepcopy(found[key]) for key in _DESIRED if key in found}
    for *parents, last in _FREE.get(found["kind"], ()):
        place: Any = made
        for parent in parents:
            place = place.get(parent, {})
        place.pop(last, None)
    metadata = made.get("spec", {}).get("template", {}).get("metadata") if isinstance(made.get("spec"), dict) else None
    if isinstance(metadata, dict):
        annotations = metadata.pop("annotations", None) or {}
        kept = {key: value for key, value in annotations.items() if not key.startswith(_FREE_ANNOTATIONS)}
        if kept:
            metadata["annotations"] = kept
    return made


def _containers(containers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["name"]: {key: one[key] for key in _CONTAINER_FIELDS if one.get(key)} for one in containers}


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}[{place}]")
    elif before != after and not (not before and not after and before != 0 and after != 0):
        yield path, before, after


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
