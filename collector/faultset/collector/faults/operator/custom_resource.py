"""Changing one field of a component in the custom resource that an operator acts on, and what the operator says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from faultset.collector.faults.registry import FaultyObject
from faultset.collector.platforms.api.platform import Platform
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features.operators import CustomResource
from faultset.core.times import SECOND_NS


def resource_at_fault(app: AppSpec, target: str) -> FaultyObject:
    """Return the custom resource as the root cause."""
    resource = _resource_of(app)
    return FaultyObject(resource.kind, resource.name)


def names_of_resource(app: AppSpec, target: str) -> tuple[str, ...]:
    """Return the plural that the resource's definition gives, which benchmarks of operators take as an answer."""
    return (_resource_of(app).plural,)


def set_field(platform: Platform, component: str, field: str, value: Any) -> dict[str, Any]:
    """Set one field of a component in the custom resource, and return it; the undo goes through it as well."""
    resource = _resource_of(platform.app)
    platform.patch(resource.kind, resource.name, {"spec": {component: {field: value}}})
    return {field: value}


def has_field(platform: Platform, component: str, parameters: Mapping[str, Any]) -> bool:
    """Say whether the custom resource has what `set_field` has set, perhaps beside other parts of the same field."""
    resource = _resource_of(platform.app)
    wanted = platform.get(resource.kind, resource.name)["spec"].get(component) or {}
    return _has(wanted, parameters)


def now_ns(platform: Platform, target: str) -> int:
    """Return the time, from when on the operator's events count; for the `observe` of a fault."""
    return time.time_ns()


def is_refused(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """See whether the operator has told since `before` that it failed to do what the resource asks for."""
    resource = _resource_of(platform.app)
    if not has_field(platform, target, parameters):
        return None
    for batch in platform.sources["events"].snapshot(int(before), time.time_ns() + SECOND_NS):
        for event in batch.select(["type", "reason", "kind", "name", "message"]).to_pylist():
            is_about = (event["kind"], event["name"]) == (resource.kind, resource.name)
            if is_about and event["type"] == "Warning" and event["reason"].startswith("Failed"):
                return f"{resource.kind} {resource.name}: {event['reason']}: {event['message']}"
    return None


def _has(found: Any, wanted: Any) -> bool:
    """Say whether a merge patch would change nothing.

    >>> _has({"context": {"user": -1, "group": 5}}, {"context": {"user": -1}}), _has({"size": 1}, {"size": 2})
    (True, False)
    """
    if not isinstance(wanted, Mapping):
        return found == wanted
    parts = cast("Mapping[str, Any]", wanted)
    return isinstance(found, Mapping) and all(_has(found.get(key), value) for key, value in parts.items())


def _resource_of(app: AppSpec) -> CustomResource:
    assert app.operator is not None, "faults of a custom resource have targets in applications with an operator only"
    return app.operator.resource
