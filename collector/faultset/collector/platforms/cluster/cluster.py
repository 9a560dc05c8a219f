"""A cluster model without I/O: the scheduler, the controllers of volumes and Services, and the cluster itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.platforms.cluster.context import HOSTNAME_LABEL, NODE, Command, Context, Report
from faultset.collector.platforms.cluster.kubelet import Kubelet
from faultset.collector.platforms.cluster.object_store import ObjectStore, owner_reference
from faultset.collector.platforms.cluster.workloads import (
    reconcile_deployments,
    reconcile_replica_sets,
    reconcile_stateful_sets,
)
from faultset.collector.platforms.objects import ChangeLog, EventRecorder, is_active, is_ready
from faultset.core.times import rfc3339
from faultset.datasets.telemetry_formats.kubernetes_objects import Object, quantity

FIRST_RETRY_S = 30.0
LONGEST_RETRY_S = 300.0

_PREEMPTION = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


class Scheduler:
    """Assigns pods to the node, and reports unschedulable pods at growing intervals."""

    def __init__(self) -> None:
        self._attempts: dict[str, tuple[str, int, float]] = {}

    def reconcile(self, context: Context) -> None:
        """Try to assign every pod without a node."""
        for pod in context.store.each("Pod"):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            obstacle = _find_obstacle(context, pod)
            if obstacle is None:
                self._attempts.pop(pod["metadata"]["uid"], None)
                _assign_to_node(context, pod)
            else:
                self._refuse(context, pod, obstacle)

    def _refuse(self, context: Context, pod: Object, obstacle: str) -> None:
        uid = pod["metadata"]["uid"]
        last_obstacle, due_ns, wait_s = self._attempts.get(uid, ("", 0, FIRST_RETRY_S))
        if last_obstacle != obstacle or context.now_ns >= due_ns:
            if last_obstacle:
                wait_s = min(LONGEST_RETRY_S, 2 * wait_s)
            due_ns = context.now_ns + context.scaled_ns(wait_s)
            self._attempts[uid] = (obstacle, due_ns, wait_s)
            message = f"0/1 nodes are available: {obstacle}. {_PREEMPTION}"
            context.events.warning(pod, "FailedScheduling", message)
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            status = {**pod.get("status", {}), "conditions": [condition]}
            context.store.set_status("Pod", pod["metadata"]["name"], status)
        context.requeue(due_ns)


def _assign_to_node(context: Context, pod: Object) -> None:
    name = pod["metadata"]["name"]
    context.store.patch("Pod", name, {"spec": {"nodeName": NODE}})
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(context.now_ns)}
    context.store.set_status("Pod", name, {**pod.get("status", {}), "conditions": [condition]})
    message = f"Successfully assigned {pod['metadata']['namespace']}/{name} to {NODE}"
    context.events.normal(pod, "Scheduled", message)


def _find_obstacle(context: Context, pod: Object) -> str | None:
    for volume in pod["spec"].get("volumes", []):
        if "persistentVolumeClaim" not in volume:
            continue
        claim_name = volume["persistentVolumeClaim"]["claimName"]
        claim = context.store.find("PersistentVolumeClaim", claim_name)
        if claim is None:
            return f'persistentvolumeclaim "{claim_name}" not found'
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{claim_name}" is being deleted'
        if claim.get("status", {}).get("phase") != "Bound":
            return "pod has unbound immediate PersistentVolumeClaims"
    node = context.store.get("Node", NODE)
    labels: Mapping[str, Any] = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return "1 node(s) didn't match Pod's node affinity/selector"
    return _find_shortage(context, node, pod)


def _find_shortage(context: Context, node: Object, pod: Object) -> str | None:
    assigned = [other for other in context.store.each("Pod") if other["spec"].get("nodeName")]
    allocatable = node["status"]["allocatable"]
    if len(assigned) + 1 > int(allocatable["pods"]):
        return "1 Too many pods"
    for resource in ("cpu", "memory"):
        requested_total = sum(_sum_requests(other, resource) for other in assigned)
        if requested_total + _sum_requests(pod, resource) > quantity(allocatable[resource]):
            return f"1 Insufficient {resource}"
    return None


def _sum_requests(pod: Object, resource: str) -> float:
    """Return a pod's request: the sum over its containers or the largest init container, whichever is larger."""
    initial = (_read_request(container, resource) for container in pod["spec"].get("initContainers") or ())
    return max(sum(_read_request(container, resource) for container in pod["spec"]["containers"]), *initial, 0.0)


def _read_request(container: Mapping[str, Any], resource: str) -> float:
    resources = container.get("resources") or {}
    return quantity((resources.get("requests") or {}).get(resource, (resources.get("limits") or {}).get(resource, 0)))


CLAIM_RETRY_S = 15.0
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
"""Annotation of the StorageClass for claims without a class."""


class ClaimController:
    """Binds claims to existing or new volumes of their storage class; removes deleted claims and unused volumes."""

    def __init__(self) -> None:
        self._warned_ns: dict[str, int] = {}

    def reconcile(self, context: Context) -> None:
        """Move every claim and volume one step towards its final phase."""
        self._delete_unused(context)
        for volume in context.store.each("PersistentVolume"):
            context.store.set_status(
                "PersistentVolume", volume["metadata"]["name"], {"phase": _get_volume_phase(context, volume)}
            )
        for claim in context.store.each("PersistentVolumeClaim"):
            if not claim["metadata"].get("deletionTimestamp"):
                self._bind(context, claim)

    def _bind(self, context: Context, claim: Object) -> None:
        name = claim["metadata"]["name"]
        claim = _set_default_class(context, claim)
        volume = _find_volume(context, claim) or _provision_volume(context, claim)
        if volume is None:
            lost = claim.get("status", {}).get("phase") == "Bound"
            context.store.set_status("PersistentVolumeClaim", name, {"phase": "Lost" if lost else "Pending"})
            self._warn(context, claim)
            return
        volume_name = volume["metadata"]["name"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": name,
            "namespace": claim["metadata"]["namespace"],
            "uid": claim["metadata"]["uid"],
        }
        context.store.patch("PersistentVolume", volume_name, {"spec": {"claimRef": reference}})
        context.store.set_status("PersistentVolume", volume_name, {"phase": "Bound"})
        context.store.patch("PersistentVolumeClaim", name, {"spec": {"volumeName": volume_name}})
        status = {"phase": "Bound", "capacity": volume["spec"].get("capacity", {})}
        context.store.set_status("PersistentVolumeClaim", name, status)

    def _warn(self, context: Context, claim: Object) -> None:
        uid, retry_ns = claim["metadata"]["uid"], context.scaled_ns(CLAIM_RETRY_S)
        last_ns = self._warned_ns.get(uid)
        if last_ns is None or context.now_ns >= last_ns + retry_ns:
            self._warned_ns[uid] = context.now_ns
            storage_class = claim["spec"].get("storageClassName")
            if storage_class:
                message = f'storageclass.storage.k8s.io "{storage_class}" not found'
                context.events.warning(claim, "ProvisioningFailed", message)
            else:
                message = "no persistent volumes available for this claim and no storage class is set"
                context.events.normal(claim, "FailedBinding", message)
        context.requeue(self._warned_ns[uid] + retry_ns)

    def _delete_unused(self, context: Context) -> None:
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in context.store.each("Pod")
            if pod["spec"].get("nodeName")
            for volume in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in volume
        }
        for claim in context.store.each("PersistentVolumeClaim"):
            metadata = claim["metadata"]
            protected = metadata["name"] in used and metadata.get("finalizers")
            if metadata.get("deletionTimestamp") and not protected:
                context.store.remove("PersistentVolumeClaim", claim["metadata"]["name"])
        for volume in context.store.each("PersistentVolume"):
            protected = _get_volume_phase(context, volume) == "Bound" and volume["metadata"].get("finalizers")
            unclaimed = _get_volume_phase(context, volume) == "Released" and _is_deleted_after_use(volume)
            if unclaimed or (volume["metadata"].get("deletionTimestamp") and not protected):
                context.store.remove("PersistentVolume", volume["metadata"]["name"])


def _get_volume_phase(context: Context, volume: Object) -> str:
    reference = volume["spec"].get("claimRef")
    if not reference or not reference.get("uid"):
        return "Available"
    claim = context.store.find("PersistentVolumeClaim", reference["name"])
    return "Bound" if claim is not None and claim["metadata"]["uid"] == reference["uid"] else "Released"


def _find_volume(context: Context, claim: Object) -> Object | None:
    name = claim["spec"].get("volumeName")
    for volume in context.store.each("PersistentVolume"):
        if volume["metadata"].get("deletionTimestamp"):
            continue
        if name and volume["metadata"]["name"] != name:
            continue
        if _may_bind(volume, claim):
            return volume
    return None


def _set_default_class(context: Context, claim: Object) -> Object:
    """Set the default storage class on a claim without one; return the claim."""
    if "storageClassName" in claim["spec"]:
        return claim
    for storage_class in context.store.each("StorageClass"):
        if (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true":
            change = {"spec": {"storageClassName": storage_class["metadata"]["name"]}}
            return context.store.patch("PersistentVolumeClaim", claim["metadata"]["name"], change)
    return claim


def _provision_volume(context: Context, claim: Object) -> Object | None:
    """Create a volume if the claim's class provisions volumes; otherwise return None."""
    metadata, spec = claim["metadata"], claim["spec"]
    storage_class = context.store.find("StorageClass", spec.get("storageClassName") or "")
    if storage_class is None or spec.get("volumeName"):
        return None
    name = f"pvc-{metadata['uid']}"
    volume = context.store.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": dict(metadata.get("labels") or {})},
            "spec": {
                "capacity": dict(spec.get("resources", {}).get("requests", {})),
                "accessModes": spec.get("accessModes", ["ReadWriteOnce"]),
                "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
                "storageClassName": storage_class["metadata"]["name"],
            },
        }
    )
    context.events.normal(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")
    return volume


def _is_deleted_after_use(volume: Object) -> bool:
    return volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"


def _may_bind(volume: Object, claim: Object) -> bool:
    reference: dict[str, Any] = volume["spec"].get("claimRef") or {}
    if reference.get("name") and reference["name"] != claim["metadata"]["name"]:
        return False
    if reference.get("uid") and reference["uid"] != claim["metadata"]["uid"]:
        return False
    if volume["spec"].get("storageClassName") != claim["spec"].get("storageClassName"):
        return False
    requested = claim["spec"].get("resources", {}).get("requests", {}).get("storage", 0)
    return quantity(volume["spec"].get("capacity", {}).get("storage", 0)) >= quantity(requested)


HEADLESS = "None"
"""`clusterIP` of a headless Service, whose name resolves to the addresses of its pods."""


def reconcile_services(context: Context) -> None:
    """Assign an address to every Service and update its Endpoints."""
    for service in context.store.each("Service"):
        name = service["metadata"]["name"]
        if not service["spec"].get("clusterIP"):
            service = context.store.patch("Service", name, {"spec": {"clusterIP": context.service_address()}})
        subsets = _build_subsets(context, service)
        endpoints = context.store.find("Endpoints", name)
        if endpoints is None:
            context.store.create(
                {
                    "apiVersion": "v1",
                    "kind": "Endpoints",
                    "metadata": {
                        "name": name,
                        "labels": service["metadata"].get("labels", {}),
                        "ownerReferences": [owner_reference(service)],
                    },
                    "subsets": subsets,
                }
            )
        elif endpoints["subsets"] != subsets:
            context.store.patch("Endpoints", name, {"subsets": subsets})


def _build_subsets(context: Context, service: Object) -> list[dict[str, Any]]:
    selector = service["spec"].get("selector")
    if not selector:
        return []
    ready, unready, example = [], [], None
    for pod in context.store.each("Pod", selector):
        address = pod.get("status", {}).get("podIP")
        if address and is_active(pod):
            example = pod
            reference = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            (ready if is_ready(pod) else unready).append({"ip": address, "targetRef": reference})
    if example is None:
        return []
    ports = [
        {"name": port.get("name", ""), "port": target_port(port, example), "protocol": port["protocol"]}
        for port in service["spec"].get("ports", [])
    ]
    return [{"addresses": ready, "notReadyAddresses": unready, "ports": ports}]


def target_port(port: dict[str, Any], pod: Object) -> int:
    """Return the target port number of a Service port; 0 if the pod has no port of that name."""
    target = port["targetPort"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports", []):
            if declared.get("name") == target:
                return declared["containerPort"]
    return int(target) if str(target).isdigit() else 0


_STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": "rancher.io/local-path",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}
"""The default class of a single-node cluster."""
_MAX_ROUNDS = 1000


class Cluster:
    """Objects and the controllers that reconcile them.

    Parameters
    ----------
    service_address, pod_address
        Return an unused address for the next Service and the next pod.
    back_off_factor
        Multiplies restart and retry delays; 1 gives the delays of a real cluster.
    allocatable
        Resources that the node offers to pods, as Kubernetes quantities.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int],
        seed: int,
        namespace: str,
        label_key: str,
        service_address: Callable[[], str],
        pod_address: Callable[[], str],
        back_off_factor: float = 1.0,
        allocatable: Mapping[str, str] | None = None,
    ):
        rng = random.Random(seed)
        self._label_key = label_key
        self.store = ObjectStore(clock=clock, rng=rng, namespace=namespace)
        self.events = EventRecorder(clock=clock, service_of=self.service_of)
        self.changes = ChangeLog(clock=clock, service_of=self.service_of)
        self.store.listen(self.changes.record)
        self.context = Context(
            store=self.store,
            events=self.events,
            clock=clock,
            rng=rng,
            service_address=service_address,
            pod_address=pod_address,
            factor=back_off_factor,
        )
        self._claims = ClaimController()
        self._scheduler = Scheduler()
        self.kubelet = Kubelet(self.context, self.service_of)
        self._seen_version = -1
        resources = dict(allocatable or {"cpu": "16", "memory": "64Gi", "pods": "110"})
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {HOSTNAME_LABEL: NODE}}}
        self.store.create({**node, "status": {"allocatable": resources}})
        self.store.create(_STORAGE_CLASS)

    def service_of(self, resource: Mapping[str, Any]) -> str | None:
        """Return the name of the workload to which an object belongs, or None."""
        labels = resource["metadata"].get("labels") or {}
        return labels.get(self._label_key)

    @property
    def due(self) -> bool:
        """Whether `reconcile` has work: an object changed or a delay has ended."""
        at_ns = self.context.due_ns
        return self.store.version != self._seen_version or (at_ns is not None and self.context.now_ns >= at_ns)

    def reconcile(self) -> list[Command]:
        """Run all controllers until no object changes; return commands for the node."""
        commands: list[Command] = []
        for _ in range(_MAX_ROUNDS):
            version = self.store.version
            self.context.due_ns = None
            self._claims.reconcile(self.context)
            reconcile_deployments(self.context)
            reconcile_replica_sets(self.context)
            reconcile_stateful_sets(self.context)
            self._scheduler.reconcile(self.context)
            commands += self.kubelet.reconcile()
            reconcile_services(self.context)
            if self.store.version == version:
                break
        self._seen_version = self.store.version
        return commands

    def handle(self, report: Report) -> None:
        self.kubelet.handle(report)
        self._seen_version = -1
