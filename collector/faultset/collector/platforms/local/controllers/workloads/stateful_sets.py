"""StatefulSets: pods with stable names and claims of their own, made, replaced and ended one after the other."""

from __future__ import annotations

from typing import Any

from faultset.collector.platforms.api.objects import Object, copied
from faultset.collector.platforms.api.pod_state import is_active, is_ready
from faultset.collector.platforms.local.api_server.object_store import owner_reference, selects
from faultset.collector.platforms.local.controllers.context import Context

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
