"""Deployments, ReplicaSets and StatefulSets: pods as many and of the template that they ask for."""

from __future__ import annotations

import math
from typing import Any

from faultset.collector.platforms.cluster.context import Context
from faultset.collector.platforms.cluster.object_store import owner_reference, owner_uid, selects
from faultset.collector.platforms.objects import Object, copied, is_active, is_ready
from faultset.collector.platforms.observation.objects import rfc3339

HASH_LABEL = "pod-template-hash"


def reconcile_deployments(context: Context) -> None:
    """Bring the ReplicaSets of every Deployment one step towards its spec."""
    for deployment in context.store.each("Deployment"):
        if deployment["metadata"].get("deletionTimestamp"):
            continue
        new = _current_set(context, deployment)
        old = [found for found in context.store.owned("ReplicaSet", deployment) if found is not new]
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            _recreate(context, deployment, new, old)
        else:
            _roll(context, deployment, new, old)
        _forget_old_sets(context, deployment, old)
        _update_status(context, deployment)


def _current_set(context: Context, deployment: Object) -> Object:
    template = deployment["spec"]["template"]
    digest = context.template_hash(deployment)
    name = f"{deployment['metadata']['name']}-{digest}"
    found = context.store.find("ReplicaSet", name)
    if found is not None:
        return found
    labels = {**template["metadata"].get("labels", {}), HASH_LABEL: digest}
    pod_template = copied(template)
    pod_template.setdefault("metadata", {})["labels"] = labels
    selector = {**deployment["spec"]["selector"].get("matchLabels", {}), HASH_LABEL: digest}
    made: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "labels": labels, "ownerReferences": [owner_reference(deployment)]},
        "spec": {"replicas": 0, "selector": {"matchLabels": selector}, "template": pod_template},
        "status": {"replicas": 0, "readyReplicas": 0, "availableReplicas": 0},
    }
    return context.store.create(made)


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
    wanted = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"]["rollingUpdate"]
    surge = _share(rolling["maxSurge"], wanted, math.ceil)
    unavailable = _share(rolling["maxUnavailable"], wanted, math.floor)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    total = new["spec"]["replicas"] + sum(found["spec"]["replicas"] for found in old)
    if new["spec"]["replicas"] > wanted:
        _scale(context, deployment, new, wanted)
    elif new["spec"]["replicas"] < wanted:
        room = max(0, wanted + surge - total)
        _scale(context, deployment, new, min(wanted, new["spec"]["replicas"] + room))
    new = context.store.get("ReplicaSet", new["metadata"]["name"])
    _shrink_old(context, deployment, new, old, max(0, wanted - min(unavailable, wanted)))


def _shrink_old(context: Context, deployment: Object, new: Object, old: list[Object], minimum: int) -> None:
    total = new["spec"]["replicas"] + sum(found["spec"]["replicas"] for found in old)
    new_unavailable = new["spec"]["replicas"] - new["status"].get("availableReplicas", 0)
    removable = total - minimum - max(0, new_unavailable)
    broken_first = sorted(old, key=lambda found: found["status"].get("availableReplicas", 0))
    for replica_set in broken_first:
        replicas = replica_set["spec"]["replicas"]
        broken = replicas - replica_set["status"].get("availableReplicas", 0)
        step = min(max(0, broken), max(0, removable), replicas)
        removable -= step
        _scale(context, deployment, replica_set, replicas - step)
    old = [context.store.get("ReplicaSet", found["metadata"]["name"]) for found in old]
    available = sum(
        min(found["spec"]["replicas"], found["status"].get("availableReplicas", 0)) for found in [new, *old]
    )
    spare = available - minimum
    for replica_set in old:
        step = min(replica_set["spec"]["replicas"], max(0, spare))
        spare -= step
        _scale(context, deployment, replica_set, replica_set["spec"]["replicas"] - step)


def _share(value: int | str, whole: int, rounding: Any) -> int:
    if isinstance(value, str) and value.endswith("%"):
        return int(rounding(whole * float(value[:-1]) / 100))
    return int(value)


def _forget_old_sets(context: Context, deployment: Object, old: list[Object]) -> None:
    idle = [found for found in old if not found["spec"]["replicas"] and not found["status"].get("replicas")]
    for replica_set in idle[: max(0, len(idle) - deployment["spec"]["revisionHistoryLimit"])]:
        context.store.delete("ReplicaSet", replica_set["metadata"]["name"])


def _update_status(context: Context, deployment: Object) -> None:
    sets = context.store.owned("ReplicaSet", deployment)
    new = context.template_hash(deployment)
    counts = {field: sum(found["status"].get(field, 0) for found in sets) for field in _COUNTED}
    wanted = deployment["spec"]["replicas"]
    enough = counts["availableReplicas"] >= wanted
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
    made = {
        "observedGeneration": deployment["metadata"]["generation"],
        **counts,
        "unavailableReplicas": max(0, wanted - counts["availableReplicas"]),
        "updatedReplicas": sum(
            found["status"].get("replicas", 0) for found in sets if found["metadata"]["labels"][HASH_LABEL] == new
        ),
        "conditions": [available],
    }
    context.store.set_status("Deployment", deployment["metadata"]["name"], made)


_COUNTED = ("replicas", "readyReplicas", "availableReplicas")


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


REVISION_LABEL = "controller-revision-hash"
NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


def reconcile_stateful_sets(context: Context) -> None:
    """Bring the pods of every StatefulSet one step towards its spec."""
    for found in context.store.each("StatefulSet"):
        if not found["metadata"].get("deletionTimestamp"):
            _Step(context, found).take()


class _Step:
    """One look at one set: its pods by ordinal, and at most one change."""

    def __init__(self, context: Context, stateful_set: Object):
        self._context, self._set = context, stateful_set
        self._name: str = stateful_set["metadata"]["name"]
        self._wanted: int = stateful_set["spec"]["replicas"]
        self._revision = f"{self._name}-{context.template_hash(stateful_set)}"
        self._pods = self._by_ordinal()

    def take(self) -> None:
        """Make, end or replace one pod, unless one that was made or ended before is still waited for."""
        if self._make_missing() and self._end_surplus():
            self._replace_old()
        self._report()

    def _by_ordinal(self) -> dict[int, Object]:
        found = {}
        for pod in self._context.store.owned("Pod", self._set):
            base, _, ordinal = pod["metadata"]["name"].rpartition("-")
            if base == self._name and ordinal.isdigit():
                found[int(ordinal)] = pod
        return found

    def _make_missing(self) -> bool:
        """Make the first pod that is missing; say whether all are there and ready."""
        for ordinal in range(self._wanted):
            pod = self._pods.get(ordinal)
            if pod is None:
                self._create(ordinal)
                return False
            if not (is_active(pod) and is_ready(pod)):
                return False
        return True

    def _end_surplus(self) -> bool:
        """Delete the pod with the highest ordinal that is not wanted; say whether there is none."""
        surplus = [ordinal for ordinal in self._pods if ordinal >= self._wanted]
        if not surplus:
            return True
        self._delete(max(surplus))
        return False

    def _replace_old(self) -> None:
        """Delete the highest pod of an older template, unless the strategy leaves that to the user."""
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
        if context.store.find("Pod", name) is not None:  # somebody else's pod, or one that was let go of
            return
        spec = self._set["spec"]
        template = copied(spec["template"])
        metadata, pod = template.get("metadata", {}), template["spec"]
        labels = {NAME_LABEL: name, INDEX_LABEL: str(ordinal), REVISION_LABEL: self._revision}
        pod["hostname"], pod["subdomain"] = name, spec.get("serviceName", "")
        claims = {claim["metadata"]["name"]: claim for claim in spec.get("volumeClaimTemplates") or ()}
        kept = [volume for volume in pod.get("volumes", []) if volume["name"] not in claims]
        pod["volumes"] = kept + [
            {"name": volume, "persistentVolumeClaim": {"claimName": self._claim(volume, claim, name)}}
            for volume, claim in claims.items()
        ]
        made: dict[str, Any] = {
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
        context.store.create(made)
        context.events.normal(
            self._set, "SuccessfulCreate", f"create Pod {name} in StatefulSet {self._name} successful"
        )

    def _claim(self, volume: str, template: dict[str, Any], pod: str) -> str:
        """Return the name of a pod's claim, which is made when there is none and outlives its pod."""
        context, name = self._context, f"{volume}-{pod}"
        if context.store.find("PersistentVolumeClaim", name) is None:
            labels = {**template["metadata"].get("labels", {}), **self._set["spec"]["selector"]["matchLabels"]}
            metadata = {**template["metadata"], "name": name, "labels": labels}
            made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
            context.store.create({**made, "spec": copied(template["spec"])})
            message = f"create Claim {name} Pod {pod} in StatefulSet {self._name} success"
            context.events.normal(self._set, "SuccessfulCreate", message)
        return name

    def _report(self) -> None:
        selector = self._set["spec"]["selector"]["matchLabels"]
        pods = [pod for pod in self._context.store.owned("Pod", self._set) if selects(selector, pod)]
        ready = sum(is_active(pod) and is_ready(pod) for pod in pods)
        updated = sum(is_active(pod) and self._is_current(pod) for pod in pods)
        before = self._set.get("status", {}).get("currentRevision", self._revision)
        is_complete = len(pods) == ready == updated == self._wanted
        current = self._revision if is_complete else before
        of_current = [pod for pod in pods if pod["metadata"]["labels"].get(REVISION_LABEL) == current]
        status = {
            "observedGeneration": self._set["metadata"]["generation"],
            "replicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "currentReplicas": len(of_current),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": self._revision,
        }
        self._context.store.set_status("StatefulSet", self._name, status)
