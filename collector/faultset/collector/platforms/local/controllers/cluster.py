"""One small cluster: object store, event log and controllers, driven from outside and free of I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import is_active, is_ready
from faultset.collector.platforms.local.api_server.object_store import ObjectStore, owner_reference
from faultset.collector.platforms.local.controllers.claims import DEFAULT_CLASS, ClaimController
from faultset.collector.platforms.local.controllers.commands import Command, Report
from faultset.collector.platforms.local.controllers.context import Context
from faultset.collector.platforms.local.controllers.kubelet import Kubelet
from faultset.collector.platforms.local.controllers.scheduler import HOSTNAME_LABEL, NODE, Scheduler
from faultset.collector.platforms.local.controllers.workloads.deployments import reconcile_deployments
from faultset.collector.platforms.local.controllers.workloads.replica_sets import reconcile_replica_sets
from faultset.collector.platforms.local.controllers.workloads.stateful_sets import reconcile_stateful_sets
from faultset.collector.platforms.observation.events import EventRecorder
from faultset.collector.platforms.observation.object_changes import ChangeLog

HEADLESS = "None"
"""Address of a Service that has none: its name, and names of its own for pods, lead to pods themselves."""


def reconcile_services(context: Context) -> None:
    """Give every Service an address and keep its Endpoints current."""
    for service in context.store.each("Service"):
        name = service["metadata"]["name"]
        if not service["spec"].get("clusterIP"):
            service = context.store.patch("Service", name, {"spec": {"clusterIP": context.service_address()}})
        subsets = _subsets(context, service)
        found = context.store.find("Endpoints", name)
        if found is None:
            made: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": {
                    "name": name,
                    "labels": service["metadata"].get("labels", {}),
                    "ownerReferences": [owner_reference(service)],
                },
                "subsets": subsets,
            }
            context.store.create(made)
        elif found["subsets"] != subsets:
            context.store.patch("Endpoints", name, {"subsets": subsets})


def _subsets(context: Context, service: Object) -> list[dict[str, Any]]:
    selector = service["spec"].get("selector")
    if not selector:
        return []
    ready, waiting, example = [], [], None
    for pod in context.store.each("Pod", selector):
        address = pod.get("status", {}).get("podIP")
        if address and is_active(pod):
            example = pod
            reference = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            (ready if is_ready(pod) else waiting).append({"ip": address, "targetRef": reference})
    if example is None:
        return []
    ports = [
        {"name": port.get("name", ""), "port": target_port(port, example), "protocol": port["protocol"]}
        for port in service["spec"].get("ports", [])
    ]
    return [{"addresses": ready, "notReadyAddresses": waiting, "ports": ports}]


def target_port(port: dict[str, Any], pod: Object) -> int:
    """Return the number of a Service port's target; 0 when the pod has no port of that name."""
    target = port["targetPort"]
    if isinstance(target, int):
        return target
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports", []):
            if declared.get("name") == target:
                return declared["containerPort"]
    return int(target) if str(target).isdigit() else 0


_MAX_ROUNDS = 50
_STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
    "provisioner": "rancher.io/local-path",
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}
"""The class that a cluster of one node comes with."""


class Cluster:
    """Objects and the controllers that act on them.

    Parameters
    ----------
    clock
        Returns the time in nanoseconds since 1970.
    seed
        Seed of pod names and uids.
    namespace
        Namespace of the application.
    label_key
        Label that names the workload on all of its objects.
    service_address, pod_address
        Return an unused address for the next Service and the next pod.
    back_off_factor
        Multiplies the waits of restarts and retries; 1 is what a real cluster does.
    allocatable
        What the node offers to pods, in Kubernetes quantities.
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
        self.store.listen(self.changes.changed)
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
        offered = dict(allocatable or {"cpu": "16", "memory": "64Gi", "pods": "110"})
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {HOSTNAME_LABEL: NODE}}}
        self.store.create({**node, "status": {"allocatable": offered}})
        self.store.create(_STORAGE_CLASS)

    def service_of(self, found: Mapping[str, Any]) -> str | None:
        """Return the workload that owns an object, or None."""
        labels = found["metadata"].get("labels") or {}
        return labels.get(self._label_key)

    @property
    def due(self) -> bool:
        """Whether `reconcile` has something to do: a change, or a wait that is over."""
        at_ns = self.context.due_ns
        return self.store.version != self._seen_version or (at_ns is not None and self.context.now_ns >= at_ns)

    def reconcile(self) -> list[Command]:
        """Run all controllers until nothing changes any more, and return what the node has to do."""
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
        """Take in what the node reports."""
        self.kubelet.handle(report)
        self._seen_version = -1
