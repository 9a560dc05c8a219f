"""What the state of a workload says."""

from __future__ import annotations

from faultset.collector.platforms.api.objects import Object

WORKLOADS = ("Deployment", "StatefulSet")
"""Kinds of objects that own an application's pods."""


def is_rolled_out(workload: Object) -> bool:
    """Say whether all replicas are available and have the workload's present template, and no older one is left.

    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1}})
    True
    >>> is_rolled_out({"metadata": {}, "spec": {"replicas": 1}, "status": {"availableReplicas": 1, "replicas": 2}})
    False
    """
    state, wanted = workload.get("status", {}), workload["spec"].get("replicas", 1)
    made = workload["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", made) >= made
    updated, available = state.get("updatedReplicas", wanted), state.get("availableReplicas", 0)
    return is_seen and updated >= wanted and available >= wanted and state.get("replicas", wanted) <= wanted


def is_as_wanted(resource: Object) -> bool:
    """Say whether the operator of a custom resource has seen its present form and made what it asks for.

    >>> is_as_wanted({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}})
    False

    An operator that does not say which form it has seen is believed.

    >>> is_as_wanted({"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    True
    """
    state = resource.get("status", {})
    conditions = {one["type"]: one["status"] for one in state.get("conditions", [])}
    made = resource["metadata"].get("generation", 0)
    is_seen = state.get("observedGeneration", made) >= made
    return is_seen and bool(conditions) and all(status == "True" for status in conditions.values())
