"""A cluster model without I/O: objects and controllers, and a simulation that adds a clock and a node."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.platforms.cluster.context import (
    Command,
    ContainerExited,
    Context,
    ProbeContainer,
    ProbeResult,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.platforms.cluster.kubelet import Kubelet
from faultset.collector.platforms.cluster.object_store import ObjectStore, owner_reference
from faultset.collector.platforms.cluster.scheduling import (
    DEFAULT_CLASS,
    HOSTNAME_LABEL,
    NODE,
    ClaimController,
    Scheduler,
)
from faultset.collector.platforms.cluster.workloads import (
    reconcile_deployments,
    reconcile_replica_sets,
    reconcile_stateful_sets,
)
from faultset.collector.platforms.objects import ChangeLog, EventRecorder, is_active, is_ready
from faultset.collector.spec.containers import PAUSE_REPOSITORY
from faultset.core.times import SECOND_NS
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

HEADLESS = "None"
"""`clusterIP` of a headless Service, whose name resolves to the addresses of its pods."""
_MAX_ROUNDS = 1000


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


class Cluster:
    """Objects and the controllers that reconcile them.

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
        """Process a report from the node."""
        self.kubelet.handle(report)
        self._seen_version = -1


class SimulatedCluster:
    """A `Cluster` with a simulated clock and node.

    Containers start and stop immediately and pass their probes; only pause containers fail them.

    Parameters
    ----------
    now_ns
        Initial time; only `advance` changes it.

    Attributes
    ----------
    missing_programs
        Programs that cannot be started.
    ignores_term
        Pods whose containers ignore SIGTERM.
    """

    def __init__(
        self,
        *,
        now_ns: int,
        namespace: str,
        label_key: str,
        seed: int = 7,
        back_off_factor: float = 1.0,
        allocatable: Mapping[str, str] | None = None,
    ):
        self.now_ns = now_ns
        self.running: dict[tuple[str, str], StartContainer] = {}
        self.missing_programs: set[str] = set()
        self.ignores_term: set[str] = set()
        self._services, self._pods = itertools.count(1), itertools.count(1)
        self.cluster = Cluster(
            clock=self.time_ns,
            seed=seed,
            namespace=namespace,
            label_key=label_key,
            service_address=self._service_address,
            pod_address=self._pod_address,
            back_off_factor=back_off_factor,
            allocatable=allocatable,
        )
        self.store = self.cluster.store
        self.settle()

    def time_ns(self) -> int:
        """Return the simulated time."""
        return self.now_ns

    def settle(self) -> None:
        """Run the controllers until nothing is due."""
        for _ in range(_MAX_ROUNDS):
            if not self.cluster.due:
                return
            for command in self.cluster.reconcile():
                self._perform(command)
        raise AssertionError(f"the controllers are still acting after {_MAX_ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Advance the clock and run the controllers whenever something is due."""
        end_ns = self.now_ns + round(seconds * SECOND_NS)
        while (due_ns := self.cluster.context.due_ns) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.settle()
        self.now_ns = end_ns
        self.settle()

    def end(self, *pods: str, code: int = 2, out_of_memory: bool = False) -> None:
        """End the containers of pods, as if their programs had exited."""
        for key, started in [*self.running.items()]:
            if started.pod in pods:
                self._end(key, code, out_of_memory=out_of_memory)
        self.settle()

    def _perform(self, command: Command) -> None:
        report: Report | None = None
        match command:
            case StartContainer():
                report = self._start(command)
            case ProbeContainer():
                report = self._probe(command)
            case SignalContainer():
                key = (command.uid, command.container)
                started = self.running.get(key)
                if started and (command.signal == "KILL" or started.pod not in self.ignores_term):
                    self._end(key, 137 if command.signal == "KILL" else 0)
            case _:
                pass
        if report is not None:
            self.cluster.handle(report)

    def _start(self, command: StartContainer) -> Report:
        fields: dict[str, Any] = {
            "uid": command.uid,
            "container": command.container,
            "attempt": command.attempt,
            "time_ns": self.now_ns,
        }
        program = command.command[0] if command.command else ""
        if program in self.missing_programs:
            return StartFailed(**fields, message=f'exec: "{program}": executable file not found')
        self.running[command.uid, command.container] = command
        return Started(**fields)

    def _probe(self, probe: ProbeContainer) -> Report:
        started = self.running.get((probe.uid, probe.container))
        refuses = started is None or started.image.rpartition(":")[0] == PAUSE_REPOSITORY
        return ProbeResult(
            uid=probe.uid,
            container=probe.container,
            attempt=probe.attempt,
            purpose=probe.purpose,
            time_ns=self.now_ns,
            failure=f"dial tcp {probe.address}:{probe.port}: connect: connection refused" if refuses else "",
        )

    def _end(self, key: tuple[str, str], code: int, *, out_of_memory: bool = False) -> None:
        started = self.running.pop(key)
        report = ContainerExited(
            uid=started.uid,
            container=started.container,
            attempt=started.attempt,
            time_ns=self.now_ns,
            exit_code=code,
            out_of_memory=out_of_memory,
            detail=f"Killed process of pod {started.pod}" if out_of_memory else "",
        )
        self.cluster.handle(report)

    def _service_address(self) -> str:
        return f"127.9.0.{next(self._services)}"

    def _pod_address(self) -> str:
        return f"127.9.1.{next(self._pods)}"
