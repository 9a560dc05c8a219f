"""Controllers that create and delete the pods of Deployments, ReplicaSets and StatefulSets."""

from __future__ import annotations

import math
from typing import Any

from faultset.collector.platforms.cluster.context import Context
from faultset.collector.platforms.cluster.object_store import owner_reference, owner_uid, selects
from faultset.collector.platforms.objects import deep_copy, is_active, is_ready
from faultset.core.times import rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

HASH_LABEL = "pod-template-hash"


def reconcile_deployments(context: Context) -> None:
    """Move the ReplicaSets of every Deployment one step towards its spec."""
    for deployment in context.store.each("Deployment"):
        if deployment["metadata"].get("deletionTimestamp"):
            continue
        new = _ensure_replica_set(context, deployment)
        old = [other for other in context.store.owned("ReplicaSet", deployment) if other is not new]
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            _recreate(context, deployment, new, old)
        else:
            _roll(context, deployment, new, old)
        _delete_old_sets(context, deployment, old)
        _update_status(context, deployment)


def _ensure_replica_set(context: Context, deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    digest = context.template_hash(deployment)
    name = f"{deployment['metadata']['name']}-{digest}"
    replica_set = context.store.find("ReplicaSet", name)
    if replica_set is not None:
        return replica_set
    labels = {**template["metadata"].get("labels", {}), HASH_LABEL: digest}
    pod_template = deep_copy(template)
    pod_template.setdefault("metadata", {})["labels"] = labels
    selector = {**deployment["spec"]["selector"].get("matchLabels", {}), HASH_LABEL: digest}
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(deployment)]},
        "spec": {"replicas": 0, "selector": {"matchLabels": selector}, "template": pod_template},
        "status": {"replicas": 0, "readyReplicas": 0, "availableReplicas": 0},
    }
    return context.store.create(manifest)


def _scale(context: Context, deployment: Object, replica_set: Object, replicas: int) -> None:
    before = replica_set["spec"]["replicas"]
    if replicas == before:
        return
    name = replica_set["metadata"]["name"]
    direction = "up" if replicas > before else "down"
    context.store.patch("ReplicaSet", name, {"spec": {"replicas": replicas}})
    message = f"Scaled {direction} replica set {name} from {before} to {replicas}"
    context.events.normal(deployment, "ScalingReplicaSet", message)


def _recreate(context: Context, deployment: Object, new: Object, old: list[Object]) -> None:
    for replica_set in old:
        _scale(context, deployment, replica_set, 0)
    if not any(context.store.owned("Pod", replica_set) for replica_set in old):
        _scale(context, deployment, new, deployment["spec"]["replicas"])


def _roll(context: Context, deployment: Object, new: Object, old: list[Object]) -> None:
    replicas = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    surge = _resolve_share(rolling["maxSurge"], replicas, math.ceil)
    unavailable = _resolve_share(rolling["maxUnavailable"], replicas, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    total = new["spec"]["replicas"] + sum(replica_set["spec"]["replicas"] for replica_set in old)
    if new["spec"]["replicas"] > replicas:
        _scale(context, deployment, new, replicas)
    elif new["spec"]["replicas"] < replicas:
        creatable = max(0, replicas + surge - total)
        _scale(context, deployment, new, min(replicas, new["spec"]["replicas"] + creatable))
    new = _find_current(context, new)
    _shrink_old(context, deployment, new, old, max(0, replicas - min(unavailable, replicas)))


def _shrink_old(context: Context, deployment: Object, new: Object, old: list[Object], minimum: int) -> None:
    total = new["spec"]["replicas"] + sum(other["spec"]["replicas"] for other in old)
    new_unavailable = new["spec"]["replicas"] - new["status"].get("availableReplicas", 0)
    removable = total - minimum - max(0, new_unavailable)
    broken_first = sorted(old, key=lambda other: other["status"].get("availableReplicas", 0))
    for replica_set in broken_first:
        replicas = replica_set["spec"]["replicas"]
        broken = replicas - replica_set["status"].get("availableReplicas", 0)
        step = min(max(0, broken), max(0, removable), replicas)
        removable -= step
        _scale(context, deployment, replica_set, replicas - step)
    old = [_find_current(context, other) for other in old]
    available = sum(
        min(other["spec"]["replicas"], other["status"].get("availableReplicas", 0)) for other in [new, *old]
    )
    spare = available - minimum
    for replica_set in old:
        step = min(replica_set["spec"]["replicas"], max(0, spare))
        spare -= step
        _scale(context, deployment, replica_set, replica_set["spec"]["replicas"] - step)


def _find_current(context: Context, replica_set: Object) -> Object:
    return context.store.find("ReplicaSet", replica_set["metadata"]["name"]) or replica_set


def _resolve_share(value: int | str, total: int, rounding: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounding(total * float(value[:-1]) / 100))
    return int(value)


def _delete_old_sets(context: Context, deployment: Object, old: list[Object]) -> None:
    idle = [
        replica_set
        for replica_set in old
        if not replica_set["spec"]["replicas"] and not replica_set["status"].get("replicas")
    ]
    for replica_set in idle[: max(0, len(idle) - deployment["spec"]["revisionHistoryLimit"])]:
        context.store.delete("ReplicaSet", replica_set["metadata"]["name"])


def _update_status(context: Context, deployment: Object) -> None:
    sets = context.store.owned("ReplicaSet", deployment)
    new = context.template_hash(deployment)
    counts = {field: sum(replica_set["status"].get(field, 0) for replica_set in sets) for field in _COUNT_FIELDS}
    replicas = deployment["spec"]["replicas"]
    enough = counts["availableReplicas"] >= replicas
    status = deployment.get("status", {})
    before = {condition["type"]: condition for condition in status.get("conditions", [])}
    available = {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
    }
    if before.get("Available", {}).get("status") == available["status"]:
        available = before["Available"]
    else:
        available["lastTransitionTime"] = rfc3339(context.now_ns)
    status_after = {
        "observedGeneration": deployment["metadata"]["generation"],
        **counts,
        "unavailableReplicas": max(0, replicas - counts["availableReplicas"]),
        "updatedReplicas": sum(
            replica_set["status"].get("replicas", 0)
            for replica_set in sets
            if replica_set["metadata"]["labels"][HASH_LABEL] == new
        ),
        "conditions": [available],
    }
    context.store.set_status("Deployment", deployment["metadata"]["name"], status_after)


_COUNT_FIELDS = ("replicas", "readyReplicas", "availableReplicas")


def reconcile_replica_sets(context: Context) -> None:
    """Create and delete pods so that every ReplicaSet has its desired number."""
    for replica_set in context.store.each("ReplicaSet"):
        _release_and_adopt(context, replica_set)
        pods = [pod for pod in context.store.owned("Pod", replica_set) if is_active(pod)]
        missing = replica_set["spec"]["replicas"] - len(pods)
        pods += [_create_pod(context, replica_set) for _ in range(missing)]
        for pod in sorted(pods, key=_deletion_rank)[: max(0, -missing)]:
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
    """Release pods whose labels no longer match, and adopt matching pods without a controller."""
    selector = replica_set["spec"]["selector"]["matchLabels"]
    for pod in context.store.owned("Pod", replica_set):
        if is_active(pod) and not selects(selector, pod):
            context.store.patch("Pod", pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
    for pod in context.store.each("Pod", selector):
        if is_active(pod) and owner_uid(pod) is None:
            owner = {"metadata": {"ownerReferences": [owner_reference(replica_set)]}}
            context.store.patch("Pod", pod["metadata"]["name"], owner)


def _deletion_rank(pod: Object) -> tuple[bool, bool, bool, int]:
    """Return a sort key: unscheduled, pending, unready, then ready pods; the most recently changed first."""
    running = pod.get("status", {}).get("phase") == "Running"
    age_rank = -int(pod["metadata"]["resourceVersion"])
    return bool(pod["spec"].get("nodeName")), running, is_ready(pod), age_rank


def _create_pod(context: Context, replica_set: Object) -> Object:
    template = deep_copy(replica_set["spec"]["template"])
    name = f"{replica_set['metadata']['name']}-{context.suffix()}"
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template.get("metadata", {}), "name": name, "ownerReferences": [owner_reference(replica_set)]},
        "spec": template["spec"],
        "status": {"phase": "Pending", "conditions": []},
    }
    pod = context.store.create(manifest)
    context.events.normal(replica_set, "SuccessfulCreate", f"Created pod: {name}")
    return pod


REVISION_LABEL = "controller-revision-hash"
NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


def reconcile_stateful_sets(context: Context) -> None:
    """Move the pods of every StatefulSet one step towards its spec."""
    for stateful_set in context.store.each("StatefulSet"):
        if not stateful_set["metadata"].get("deletionTimestamp"):
            _StatefulSetStep(context, stateful_set).run()


class _StatefulSetStep:
    """One reconciliation of a StatefulSet, which changes at most one pod."""

    def __init__(self, context: Context, stateful_set: Object):
        self._context, self._set = context, stateful_set
        self._name: str = stateful_set["metadata"]["name"]
        self._replicas: int = stateful_set["spec"]["replicas"]
        self._revision = f"{self._name}-{context.template_hash(stateful_set)}"
        self._pods = self._pods_by_ordinal()

    def run(self) -> None:
        """Create, delete or replace one pod, unless an earlier change is still in progress."""
        if self._create_missing() and self._delete_surplus():
            self._replace_old()
        self._update_status()

    def _pods_by_ordinal(self) -> dict[int, Object]:
        pods = {}
        for pod in self._context.store.owned("Pod", self._set):
            base, _, ordinal = pod["metadata"]["name"].rpartition("-")
            if base == self._name and ordinal.isdigit():
                pods[int(ordinal)] = pod
        return pods

    def _create_missing(self) -> bool:
        """Create the first missing pod; return whether all exist and are ready."""
        for ordinal in range(self._replicas):
            pod = self._pods.get(ordinal)
            if pod is None:
                self._create(ordinal)
                return False
            if not (is_active(pod) and is_ready(pod)):
                return False
        return True

    def _delete_surplus(self) -> bool:
        """Delete the surplus pod with the highest ordinal; return whether there was none."""
        surplus = [ordinal for ordinal in self._pods if ordinal >= self._replicas]
        if not surplus:
            return True
        self._delete(max(surplus))
        return False

    def _replace_old(self) -> None:
        """Delete the pod with the highest ordinal that has an older template, unless the strategy is OnDelete."""
        if self._set["spec"]["updateStrategy"]["type"] == "OnDelete":
            return
        old = [ordinal for ordinal, pod in self._pods.items() if not self._is_current(pod)]
        if old:
            self._delete(max(old))

    def _is_current(self, pod: Object) -> bool:
        return pod["metadata"]["labels"].get(REVISION_LABEL) == self._revision

    def _delete(self, ordinal: int) -> None:
        pod = self._pods[ordinal]
        if pod["metadata"].get("deletionTimestamp"):
            return
        name = pod["metadata"]["name"]
        self._context.store.delete("Pod", name)
        self._context.events.normal(
            self._set, "SuccessfulDelete", f"delete Pod {name} in StatefulSet {self._name} successful"
        )

    def _create(self, ordinal: int) -> None:
        context, name = self._context, f"{self._name}-{ordinal}"
        if context.store.find("Pod", name) is not None:  # the pod belongs to another owner
            return
        spec = self._set["spec"]
        template = deep_copy(spec["template"])
        metadata, pod = template.get("metadata", {}), template["spec"]
        labels = {NAME_LABEL: name, INDEX_LABEL: str(ordinal), REVISION_LABEL: self._revision}
        pod["hostname"], pod["subdomain"] = name, spec.get("serviceName", "")
        claims = {claim["metadata"]["name"]: claim for claim in spec.get("volumeClaimTemplates") or ()}
        others = [volume for volume in pod.get("volumes", []) if volume["name"] not in claims]
        pod["volumes"] = others + [
            {"name": volume, "persistentVolumeClaim": {"claimName": self._ensure_claim(volume, claim, name)}}
            for volume, claim in claims.items()
        ]
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **metadata,
                "name": name,
                "labels": {**metadata.get("labels", {}), **labels},
                "ownerReferences": [owner_reference(self._set)],
            },
            "spec": pod,
            "status": {"phase": "Pending", "conditions": []},
        }
        context.store.create(manifest)
        context.events.normal(
            self._set, "SuccessfulCreate", f"create Pod {name} in StatefulSet {self._name} successful"
        )

    def _ensure_claim(self, volume: str, template: dict[str, Any], pod: str) -> str:
        """Create a pod's claim if it does not exist and return its name; the claim outlives the pod."""
        context, name = self._context, f"{volume}-{pod}"
        if context.store.find("PersistentVolumeClaim", name) is None:
            labels = {**template["metadata"].get("labels", {}), **self._set["spec"]["selector"]["matchLabels"]}
            metadata = {**template["metadata"], "name": name, "labels": labels}
            manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
            context.store.create({**manifest, "spec": deep_copy(template["spec"])})
            message = f"create Claim {name} Pod {pod} in StatefulSet {self._name} success"
            context.events.normal(self._set, "SuccessfulCreate", message)
        return name

    def _update_status(self) -> None:
        selector = self._set["spec"]["selector"]["matchLabels"]
        pods = [pod for pod in self._context.store.owned("Pod", self._set) if selects(selector, pod)]
        ready = sum(is_active(pod) and is_ready(pod) for pod in pods)
        updated = sum(is_active(pod) and self._is_current(pod) for pod in pods)
        before = self._set.get("status", {}).get("currentRevision", self._revision)
        is_complete = len(pods) == ready == updated == self._replicas
        current = self._revision if is_complete else before
        current_pods = [pod for pod in pods if pod["metadata"]["labels"].get(REVISION_LABEL) == current]
        status = {
            "observedGeneration": self._set["metadata"]["generation"],
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(current_pods),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": self._revision,
        }
        self._context.store.set_status("StatefulSet", self._name, status)
