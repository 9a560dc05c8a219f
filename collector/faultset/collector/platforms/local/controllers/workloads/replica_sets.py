"""ReplicaSets: as many pods as wanted, of those that their selector finds."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.api.objects import Object, copied
from faultset.collector.platforms.api.pod_state import is_active, is_ready
from faultset.collector.platforms.local.api_server.object_store import owner_reference, owner_uid, selects
from faultset.collector.platforms.local.controllers.context import Context


def reconcile_replica_sets(context: Context) -> None:
    """Create and delete pods until every ReplicaSet has as many as it wants."""
    for replica_set in context.store.each("ReplicaSet"):
        _release_and_adopt(context, replica_set)
        pods = [pod for pod in context.store.owned("Pod", replica_set) if is_active(pod)]
        missing = replica_set["spec"]["replicas"] - len(pods)
        pods += [_create_pod(context, replica_set) for _ in range(missing)]
        for pod in sorted(pods, key=_first_to_go)[: max(0, -missing)]:
            name = pod["metadata"]["name"]
            context.store.delete("Pod", name)
            context.events.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {name}")
            pods.remove(pod)
        ready = sum(is_ready(pod) for pod in pods)
        status = {
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": replica_set["metadata"]["generation"],
        }
        context.store.set_status("ReplicaSet", replica_set["metadata"]["name"], status)


def _release_and_adopt(context: Context, replica_set: Object) -> None:
    """Let go of pods whose labels no longer match, and take in those that match and have no controller."""
    selector = replica_set["spec"]["selector"]["matchLabels"]
    for pod in context.store.owned("Pod", replica_set):
        if is_active(pod) and not selects(selector, pod):
            context.store.patch("Pod", pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    for pod in context.store.each("Pod", selector):
        if is_active(pod) and owner_uid(pod) is None:
            owner = {"metadata": {"ownerReferences": [owner_reference(replica_set)]}}
            context.store.patch("Pod", pod["metadata"]["name"], owner)


def _first_to_go(pod: Object) -> tuple[bool, bool, bool, int]:
    """Unscheduled before pending before unready before ready, and the newest first."""
    running = pod.get("status", {}).get("phase") == "Running"
    age_rank = -int(pod["metadata"]["resourceVersion"])
    return bool(pod["spec"].get("nodeName")), running, is_ready(pod), age_rank


def _create_pod(context: Context, replica_set: Object) -> Object:
    template = copied(replica_set["spec"]["template"])
    name = f"{replica_set['metadata']['name']}-{context.suffix()}"
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **template.get("metadata", {}),
            "name": name,
            "ownerReferences": [owner_reference(replica_set)],
        },
        "spec": template["spec"],
        "status": {"phase": "Pending", "conditions": []},
    }
    pod = context.store.create(made)
    context.events.normal(replica_set, "SuccessfulCreate", f"Created pod: {name}")
    return pod
