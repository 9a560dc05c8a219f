"""What the state of a workload says."""

from __future__ import annotations

from faultset.collector.platforms.api.objects import Object


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
