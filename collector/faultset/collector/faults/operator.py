"""Faults that start in the custom resource of an operator, and faults of the operator itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from numpy.random import Generator

from faultset.collector.faults.deployments import get_container, list_pods, patch_container
from faultset.collector.faults.registry import FaultyObject, Parameters, fault
from faultset.collector.faults.targets import (
    list_components,
    list_components_without_volumes,
    list_first_component_with_volumes,
    list_operators,
)
from faultset.collector.faults.workloads import waits_for_image
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.objects import is_unschedulable
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features import CustomResource
from faultset.core.times import SECOND_NS


def resource_at_fault(app: AppSpec, target: str) -> FaultyObject:
    resource = _resource_of(app)
    return FaultyObject(resource.kind, resource.name)


def names_of_resource(app: AppSpec, target: str) -> tuple[str, ...]:
    """Return the resource's plural name, which benchmarks of operators accept as an answer."""
    return (_resource_of(app).plural,)


def set_field(platform: Platform, component: str, field: str, value: Any) -> dict[str, Any]:
    """Set one field of a component in the custom resource, and return it."""
    resource = _resource_of(platform.app)
    platform.patch(resource.kind, resource.name, {"spec": {component: {field: value}}})
    return {field: value}


def has_field(platform: Platform, component: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether the custom resource still has the value from `set_field`."""
    resource = _resource_of(platform.app)
    fields = platform.get(resource.kind, resource.name)["spec"].get(component) or {}
    return _is_applied(fields, parameters)


def now_ns(platform: Platform, target: str) -> int:
    """Return the current time, so that `is_refused` ignores earlier events of the operator; use it as `observe`."""
    return time.time_ns()


def is_refused(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the operator has reported since `before` that it failed to apply the resource."""
    resource = _resource_of(platform.app)
    if not has_field(platform, target, parameters):
        return None
    for batch in platform.sources["events"].snapshot(int(before), time.time_ns() + SECOND_NS):
        for event in batch.select(["type", "reason", "kind", "name", "message"]).to_pylist():
            is_about = (event["kind"], event["name"]) == (resource.kind, resource.name)
            if is_about and event["type"] == "Warning" and event["reason"].startswith("Failed"):
                return f"{resource.kind} {resource.name}: {event['reason']}: {event['message']}"
    return None


def _is_applied(current: Any, change: Any) -> bool:
    """Return whether a merge patch would change nothing.

    >>> _is_applied({"context": {"user": -1, "group": 5}}, {"context": {"user": -1}})
    True
    >>> _is_applied({"size": 1}, {"size": 2})
    False
    """
    if not isinstance(change, Mapping):
        return current == change
    parts = cast("Mapping[str, Any]", change)
    return isinstance(current, Mapping) and all(_is_applied(current.get(key), value) for key, value in parts.items())


def _resource_of(app: AppSpec) -> CustomResource:
    assert app.operator is not None, "faults of a custom resource need an application with an operator"
    return app.operator.resource


REPLICAS = 100_000


def has_too_many_replicas(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the StatefulSet has the requested size and a pod cannot be scheduled."""
    replicas = platform.get("StatefulSet", target)["spec"]["replicas"]
    waiting = [pod["metadata"]["name"] for pod in list_pods(platform, target) if is_unschedulable(pod)]
    if replicas != parameters["replicas"] or not waiting:
        return None
    return f"StatefulSet {target} requests {replicas} replicas, and no node has room for pod {waiting[-1]}"


_COMMON_FIELDS = {"system_level": "Virtualization", "root_cause": resource_at_fault, "also_accepted": names_of_resource}


@fault(
    "overload-replicas",
    **_COMMON_FIELDS,
    fault_type="Operation Error",
    paper_number=11,
    targets=list_components_without_volumes,
    check=has_too_many_replicas,
    dormant_reason="the new pods stay pending, and the old ones keep running",
)
def overload_replicas(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Ask the operator for a hundred thousand replicas of a component."""
    return set_field(platform, target, "replicas", REPLICAS)


@fault(
    "invalid-toleration",
    **_COMMON_FIELDS,
    fault_type="Misconfiguration",
    targets=list_components,
    check=is_refused,
    observe=now_ns,
    dormant_reason="the API server refuses the operator's change, and the old pods keep running",
)
def invalid_toleration(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Give the component a toleration with an effect that does not exist."""
    toleration = {"key": "test-keys", "operator": "Equal", "value": "test-value"}
    toleration |= {"effect": "TAKE_SOME_EFFECT", "tolerationSeconds": 0}
    return set_field(platform, target, "tolerations", [toleration])


@fault(
    "invalid-security-context",
    **_COMMON_FIELDS,
    fault_type="Misconfiguration",
    targets=list_components,
    check=is_refused,
    observe=now_ns,
    dormant_reason="the API server refuses the operator's change, and the old pods keep running",
)
def invalid_security_context(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Make the component's pods run as user -1."""
    return set_field(platform, target, "podSecurityContext", {"runAsUser": -1})


def has_unknown_strategy(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the custom resource has the strategy; the fault has no other effect."""
    if not has_field(platform, target, parameters):
        return None
    return f"the custom resource asks for update strategy {parameters['statefulSetUpdateStrategy']} of {target}"


@fault(
    "unknown-update-strategy",
    **_COMMON_FIELDS,
    fault_type="Misconfiguration",
    targets=list_components,
    check=has_unknown_strategy,
    dormant_reason="the operator replaces an unknown strategy with its default",
)
def unknown_update_strategy(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Set an update strategy that does not exist, which the operator ignores."""
    return set_field(platform, target, "statefulSetUpdateStrategy", "SomeStrategyForUpdate")


def waits_for_volume(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether a claim of the requested storage class and the pod that mounts it are Pending."""
    if not has_field(platform, target, parameters):
        return None
    storage_class = parameters["storageClassName"]
    claims = [
        claim["metadata"]["name"]
        for claim in platform.list("PersistentVolumeClaim", {platform.app.label_key: target})
        if claim["spec"].get("storageClassName") == storage_class and claim.get("status", {}).get("phase") == "Pending"
    ]
    pods = list_pods(platform, target)
    if not claims or not pods or pods[-1].get("status", {}).get("phase") != "Pending":
        return None
    return f"claim {claims[0]} of class {storage_class} and pod {pods[-1]['metadata']['name']} are Pending"


@fault(
    "nonexistent-storage-class",
    **_COMMON_FIELDS,
    fault_type="Dependency Problem",
    targets=list_first_component_with_volumes,
    check=waits_for_volume,
)
def nonexistent_storage_class(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Request volumes of a storage class that does not exist."""
    return set_field(platform, target, "storageClassName", "this-is-a-storage-class")


@fault(
    "wrong-operator-image",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=list_operators,
    check=waits_for_image,
    dormant_reason="the custom resource has no operator, but its workloads keep running",
)
def wrong_operator_image(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Misspell the operator's image in its Deployment; the old pod stops before the new one starts."""
    repository, colon, tag = get_container(platform, target)["image"].rpartition(":")
    image = f"{repository}{repository[-1]}{colon}{tag}"
    patch_container(platform, target, recreate=True, image=image)
    return {"image": image}
