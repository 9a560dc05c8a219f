"""Decide whether an application is repaired, with four checks on the live application.

1. fault: the fault's check no longer detects the fault.
2. requests: client requests are healthy over a sustained window.
3. objects: every object has its specification from before the injection, except for fields that a repair may change.
4. presence: no object that the application needs is missing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from faultset.collector.faults.registry import FaultSpec
from faultset.collector.mitigation.messages import Part, RepairCheckResult
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import is_active
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object
from faultset.datasets.views import EpisodeView

KINDS = ("Deployment", "StatefulSet", "Service", "ConfigMap", "Secret", "PersistentVolumeClaim")
"""Kinds of objects that specify an application."""
_DESIRED_FIELDS = ("spec", "data", "stringData", "binaryData", "type")
_CHANGEABLE_FIELDS = {
    "Deployment": (("spec", "strategy"),),
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs")),
    "PersistentVolumeClaim": (("spec", "volumeName"),),
}
"""Fields that a repair may change: how pods are replaced, and values assigned by the cluster."""
_CHANGEABLE_ANNOTATIONS = (
    "kubectl.kubernetes.io/",
    "deployment.kubernetes.io/",
    "kubernetes.io/change-cause",
    "pv.kubernetes.io/",
)
_CONTAINER_FIELDS = ("image", "command", "args", "resources")

ObjectKey = tuple[str, str]


@dataclass(frozen=True)
class DesiredState:
    """The desired state of an application's objects."""

    objects: Mapping[ObjectKey, Mapping[str, Any]]
    """Specification of each object by kind and name, without fields that a repair may change."""

    @classmethod
    def of(cls, platform: Platform) -> DesiredState:
        """Return the current desired state."""
        operator = platform.app.operator
        kinds = KINDS if operator is None else (*KINDS, operator.resource.kind)
        resources = (item for kind in kinds for item in platform.list(kind))
        return cls(
            {
                (resource["kind"], resource["metadata"]["name"]): _extract_desired_fields(resource)
                for resource in resources
            }
        )

    def missing_in(self, later: DesiredState) -> list[ObjectKey]:
        """Return the objects that are missing in a later state."""
        return sorted(set(self.objects) - set(later.objects))

    def changes_to(self, later: DesiredState) -> list[str]:
        """Describe the differences in a later state, one line each; missing objects are left out."""
        lines = [f"{kind} {name} is new" for kind, name in sorted(set(later.objects) - set(self.objects))]
        for key in sorted(set(self.objects) & set(later.objects)):
            kind, name = key
            for path, before, after in _list_differences(self.objects[key], later.objects[key]):
                if kind == "Secret":
                    before = after = "..."
                lines.append(f"{kind} {name}: {path} is {_shorten(after)}, was {_shorten(before)}")
        return lines


def find_changed_pods(platform: Platform) -> list[str]:
    """Describe the running pods that differ from their workload's template in image, command or resources."""
    templates = {
        tuple(sorted((resource["spec"]["selector"].get("matchLabels") or {}).items())): resource["spec"]["template"]
        for kind in ("Deployment", "StatefulSet")
        for resource in platform.list(kind)
    }
    lines = []
    for pod in platform.list("Pod"):
        labels = pod["metadata"].get("labels") or {}
        template = next((t for selector, t in templates.items() if set(selector) <= set(labels.items())), None)
        if template is not None and is_active(pod):
            desired, current = (
                _extract_container_fields(resource["spec"]["containers"]) for resource in (template, pod)
            )
            for path, before, after in _list_differences(desired, current):
                lines.append(f"Pod {pod['metadata']['name']}: {path} is {_shorten(after)}, expected {_shorten(before)}")
    return lines


def _extract_desired_fields(resource: Object) -> dict[str, Any]:
    desired = {key: copy.deepcopy(resource[key]) for key in _DESIRED_FIELDS if key in resource}
    for *parents, last in _CHANGEABLE_FIELDS.get(resource["kind"], ()):
        owner: Any = desired
        for parent in parents:
            owner = owner.get(parent, {})
        owner.pop(last, None)
    spec = desired.get("spec")
    metadata = spec.get("template", {}).get("metadata") if isinstance(spec, dict) else None
    if isinstance(metadata, dict):
        annotations = metadata.pop("annotations", None) or {}
        kept_annotations = {
            key: value for key, value in annotations.items() if not key.startswith(_CHANGEABLE_ANNOTATIONS)
        }
        if kept_annotations:
            metadata["annotations"] = kept_annotations
    return desired


def _extract_container_fields(containers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        container["name"]: {key: container[key] for key in _CONTAINER_FIELDS if container.get(key)}
        for container in containers
    }


def _list_differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from _list_differences(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _list_differences(old, new, f"{path}[{index}]")
    elif before != after and not (not before and not after and before != 0 and after != 0):
        yield path, before, after


def _shorten(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


PARTS: tuple[Part, ...] = ("fault", "requests", "objects", "presence")
_MAX_LINES = 3


@dataclass(frozen=True)
class HealthyState:
    """The state of an application before the injection."""

    desired: DesiredState
    with_endpoints: frozenset[str]
    """Services that had ready endpoints."""

    @classmethod
    def of(cls, platform: Platform) -> HealthyState:
        """Return the current state."""
        return cls(DesiredState.of(platform), frozenset(_find_services_with_endpoints(platform)))


class RepairJudge:
    """Judges one application with one fault.

    `before` is the result of the fault's `observe` before the injection, and `healthy` the application then.
    `unhealthy_requests` describes problems of client requests scheduled between two times; empty if there are none.
    """

    def __init__(
        self,
        platform: Platform,
        fault: FaultSpec,
        target: str,
        parameters: Mapping[str, Any],
        *,
        before: Any,
        healthy: HealthyState,
        unhealthy_requests: Callable[[int, int], str],
    ):
        self._platform, self._fault, self._target, self._parameters = platform, fault, target, parameters
        self._before, self._healthy, self._unhealthy_requests = before, healthy, unhealthy_requests

    def begin_window(self) -> None:
        """Ignore the events that the fault's check has counted so far."""
        # a deleted object has no new events
        with suppress(PlatformError):
            self._before = self._fault.state_from_now(self._platform, self._target, self._before)

    def read(self, start_ns: int, end_ns: int) -> tuple[RepairCheckResult, ...]:
        """Run the four checks; requests are those scheduled in `[start_ns, end_ns)`."""
        fault, requests = self._check_fault(), self._unhealthy_requests(start_ns, end_ns)
        current = DesiredState.of(self._platform)
        problems = {
            "fault": fault,
            "requests": requests,
            "objects": self._describe_changes(current),
            "presence": self._describe_missing(current),
        }
        return tuple(RepairCheckResult(part=name, ok=not problems[name], detail=problems[name]) for name in PARTS)

    def _check_fault(self) -> str:
        """Return the evidence of the fault's check, or its error, because a repair may delete the inspected object."""
        try:
            return self._fault.check(self._platform, self._target, self._parameters, self._before) or ""
        except PlatformError as error:
            return f"its check fails: {error}"

    def _describe_changes(self, current: DesiredState) -> str:
        return _summarise_lines([*self._healthy.desired.changes_to(current), *find_changed_pods(self._platform)])

    def _describe_missing(self, current: DesiredState) -> str:
        missing = self._healthy.desired.missing_in(current)
        unbound_claims = [
            claim["metadata"]["name"]
            for claim in self._platform.list("PersistentVolumeClaim")
            if claim.get("status", {}).get("phase", "Bound") != "Bound"
        ]
        without_endpoints = self._healthy.with_endpoints - _find_services_with_endpoints(self._platform)
        return _summarise_lines(
            [
                *(f"{kind} {name} is missing" for kind, name in missing),
                *(f"claim {name} has no volume" for name in unbound_claims),
                *(f"Service {name} has no ready endpoint" for name in sorted(without_endpoints)),
            ]
        )


def _find_services_with_endpoints(platform: Platform) -> set[str]:
    return {
        endpoints["metadata"]["name"]
        for endpoints in platform.list("Endpoints")
        if any(subset.get("addresses") for subset in endpoints.get("subsets") or [])
    }


def _summarise_lines(lines: list[str]) -> str:
    more = f", and {len(lines) - _MAX_LINES} more" if len(lines) > _MAX_LINES else ""
    return "; ".join(lines[:_MAX_LINES]) + more


@dataclass(frozen=True, kw_only=True)
class LiveFault:
    """An injected fault and its application."""

    fault: FaultSpec
    target: str
    parameters: Mapping[str, Any]
    before: Any
    """Result of the fault's `observe` before the injection."""
    onset_ns: int
    """Start of the injection."""
    manifest: bool
    """Whether the fault affects client requests."""
    unhealthy_requests: Callable[[int, int], str]
    """Describes problems of client requests scheduled between two times; empty if there are none."""
    undo: Callable[[], None]
    """Undoes the injection and stops its repetitions."""
    sleep: Callable[[float], None]
    """Waits for some seconds while a repeated injection continues; raises if the episode must end."""
    clock: Callable[[], int]
    """Returns the time in UTC nanoseconds."""
    recorded: Callable[[], EpisodeView]
    """Returns the recording of the episode up to now; each call replaces the previous recording."""
