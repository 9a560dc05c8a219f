"""Allocate addresses, and compute the relay's routes, scrape targets and state metrics from Kubernetes objects."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from faultset.collector.platforms.cluster.cluster import HEADLESS, target_port
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.local.messages import (
    ConfigureRelay,
    PodImpairment,
    RelayRoute,
    RelayTarget,
    ScrapeTarget,
    StateSample,
)
from faultset.collector.platforms.objects import is_active, is_ready
from faultset.collector.sources.stores import (
    CLAIM_PHASES,
    POD_PHASES,
    TERMINATED_REASONS,
    VOLUME_PHASES,
    WAITING_REASONS,
)
from faultset.collector.spec.containers import METRICS_PORT, SPANS_PORT
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.kubernetes_objects import Object

FIRST_BLOCK, LAST_BLOCK = 10, 250
_RESERVATION_PORT = 19_119
_RELAYED_OFFSET = 100


class AddressBlock:
    """The addresses 127.NUMBER.0.0/16 of an episode; a socket that listens on one of them reserves the block.

    Parameters
    ----------
    number
        Number of the block; None for any free block.

    Raises
    ------
    PlatformError
        The block is in use, or all blocks are.
    """

    def __init__(self, number: int | None = None):
        choices = [number] if number is not None else _shuffle_blocks()
        for choice in choices:
            reservation = _reserve(choice)
            if reservation is not None:
                self.number, self._socket = choice, reservation
                break
        else:
            raise PlatformError(
                f"no free addresses: {'127.' + str(number) + '.0.0/16 is' if number is not None else 'all blocks are'} "
                "in use by other episodes; wait until they end, or end them with `faultset recover`"
            )
        self._services = self._pods = 0
        # addresses to which pods send spans, on which the telemetry process receives them, from which the load
        # generator sends requests, and on which ports are checked
        self.span_ingress, self.span_egress, self.load, self.spare = (
            f"127.{self.number}.250.{last}" for last in range(1, 5)
        )

    def allocate_service_address(self) -> str:
        self._services += 1
        if self._services > 254:
            raise PlatformError("an application can have at most 254 Services; use one with fewer")
        return f"127.{self.number}.0.{self._services}"

    def allocate_pod_address(self) -> str:
        block, last = divmod(self._pods, 254)
        self._pods += 1
        if block >= _RELAYED_OFFSET - 1:
            raise PlatformError("the episode created more than 25000 pods and has no more addresses; repeat it")
        return f"127.{self.number}.{1 + block}.{1 + last}"

    @staticmethod
    def get_relay_address(pod_address: str) -> str:
        """Return the address on which the relay forwards to an individual pod."""
        first, number, block, last = pod_address.split(".")
        return f"{first}.{number}.{int(block) + _RELAYED_OFFSET}.{last}"

    def check_ports(self, ports: Iterable[int]) -> None:
        """Raise PlatformError if a program uses one of the ports on all addresses of this machine."""
        for port in ports:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.spare, port))
                    probe.listen(1)
                except OSError as error:
                    raise PlatformError(
                        f"port {port} cannot be used at 127.{self.number}.0.0/16: {error.strerror}; "
                        "end the program that listens there on all addresses"
                    ) from None

    def release(self) -> None:
        """Release the block; may be called twice."""
        self._socket.close()


def _shuffle_blocks() -> list[int]:
    """Return the blocks in a random order, so that a freed block is rarely reused immediately."""
    blocks = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
    random.Random(f"{os.getpid()} {os.times().elapsed}").shuffle(blocks)
    return blocks


def _reserve(number: int) -> socket.socket | None:
    listener = socket.socket()
    try:
        listener.bind((f"127.{number}.255.254", _RESERVATION_PORT))
        listener.listen(1)
    except OSError:
        listener.close()
        return None
    return listener


def build_relay_configuration(
    store: ObjectStore, addresses: AddressBlock, impairments: Mapping[str, Impairment], seed: int
) -> ConfigureRelay:
    """Return the configuration of the relay; the keys of `impairments` are pod names."""
    spans = RelayTarget(pod=None, ip=addresses.span_egress, port=SPANS_PORT)
    routes = [RelayRoute(name="spans", ip=addresses.span_ingress, port=SPANS_PORT, targets=(spans,))]
    for service in store.each("Service"):
        routes += _service_routes(store, service)
    for pod in _addressed_pods(store):
        port = read_scrape_port(pod)
        if port is not None:
            name, address = pod["metadata"]["name"], pod["status"]["podIP"]
            target = RelayTarget(pod=name, ip=address, port=port)
            routes.append(
                RelayRoute(
                    name=f"metrics of {name}", ip=addresses.get_relay_address(address), port=port, targets=(target,)
                )
            )
    return ConfigureRelay(
        pods={pod["status"]["podIP"]: pod["metadata"]["name"] for pod in _addressed_pods(store)},
        routes=tuple(routes),
        impairments=tuple(PodImpairment(pod=pod, impairment=impairment) for pod, impairment in impairments.items()),
        seed=seed,
    )


def _service_routes(store: ObjectStore, service: Object) -> list[RelayRoute]:
    name, address = service["metadata"]["name"], service["spec"].get("clusterIP")
    endpoints = store.find("Endpoints", name)
    if not address or endpoints is None:
        return []
    if address == HEADLESS:
        return _pod_routes(store, service)
    routes = []
    for index, port in enumerate(service["spec"].get("ports", [])):
        targets = tuple(
            RelayTarget(pod=ready["targetRef"]["name"], ip=ready["ip"], port=int(subset["ports"][index]["port"]))
            for subset in endpoints["subsets"]
            for ready in subset["addresses"]
            if subset["ports"][index]["port"]
        )
        routes.append(RelayRoute(name=f"{name}:{port['port']}", ip=address, port=int(port["port"]), targets=targets))
    return routes


def _pod_routes(store: ObjectStore, service: Object) -> list[RelayRoute]:
    """Return a route for each named pod of a headless Service and each port."""
    routes = []
    for name, pod in list_named_pods(store, service):
        ip = pod["status"]["podIP"]
        for port in service["spec"].get("ports", []):
            targets = (RelayTarget(pod=pod["metadata"]["name"], ip=ip, port=target_port(port, pod)),)
            address, number = AddressBlock.get_relay_address(ip), int(port["port"])
            routes.append(RelayRoute(name=f"{name}:{number}", ip=address, port=number, targets=targets))
    return routes


def list_named_pods(store: ObjectStore, service: Object) -> Iterator[tuple[str, Object]]:
    """Yield the names and pods of a headless Service whose pods have hostnames."""
    name, spec = service["metadata"]["name"], service["spec"]
    if spec.get("clusterIP") != HEADLESS or not spec.get("selector"):
        return
    for pod in store.each("Pod", spec["selector"]):
        is_named = pod["spec"].get("hostname") and pod["spec"].get("subdomain") == name
        is_published = is_ready(pod) or spec.get("publishNotReadyAddresses")
        if is_named and is_published and is_active(pod) and pod.get("status", {}).get("podIP"):
            yield f"{pod['spec']['hostname']}.{name}", pod


def build_scrape_targets(
    store: ObjectStore, addresses: AddressBlock, service_of: Callable[[Mapping[str, Any]], str | None]
) -> tuple[ScrapeTarget, ...]:
    """Return the pods of the application with the addresses of their metrics."""
    targets = []
    for pod in _addressed_pods(store):
        port = read_scrape_port(pod)
        targets.append(
            ScrapeTarget(
                pod=pod["metadata"]["name"],
                service=service_of(pod),
                container=pod["spec"]["containers"][0]["name"],
                address=None if port is None else (addresses.get_relay_address(pod["status"]["podIP"]), port),
            )
        )
    return tuple(targets)


def build_hosts(store: ObjectStore) -> dict[str, str]:
    """Return the addresses of all Services and of named pods of headless Services, by host name."""
    addresses: dict[str, str] = {}
    for service in store.each("Service"):
        name, address = service["metadata"]["name"], service["spec"].get("clusterIP")
        if address and address != HEADLESS:
            addresses[name] = address
        for pod_name, pod in list_named_pods(store, service):
            addresses[pod_name] = AddressBlock.get_relay_address(pod["status"]["podIP"])
            addresses.setdefault(name, addresses[pod_name])
    return addresses


def read_scrape_port(pod: Object) -> int | None:
    """Return the metrics port in a pod's annotations, or None."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get("prometheus.io/scrape") != "true":
        return None
    return int(annotations.get("prometheus.io/port", METRICS_PORT))


def _addressed_pods(store: ObjectStore) -> list[Object]:
    return [pod for pod in store.each("Pod") if pod.get("status", {}).get("podIP")]


def build_state_samples(
    store: ObjectStore, service_of: Callable[[Mapping[str, Any]], str | None]
) -> tuple[StateSample, ...]:
    """Return a sample of every state series in a stable order."""
    result: list[StateSample] = []
    for kind, samples in _SAMPLES.items():
        for resource in store.each(kind):
            service = service_of(resource)
            for metric, pod, container, labels, value in samples(resource):
                series_kind = "counter" if metric.endswith("_total") else "gauge"
                result.append(
                    StateSample(
                        metric=metric,
                        service=service,
                        pod=pod,
                        container=container,
                        labels=labels,
                        kind=series_kind,
                        value=float(value),
                    )
                )
    return tuple(result)


_Sample = tuple[str, str | None, str | None, dict[str, str], float]


_REPLICA_COUNTS = {
    "replicas": "replicas",
    "replicas_available": "availableReplicas",
    "replicas_ready": "readyReplicas",
    "replicas_updated": "updatedReplicas",
}


def _sample_deployment(deployment: Object) -> Iterator[_Sample]:
    counts = {**_REPLICA_COUNTS, "replicas_unavailable": "unavailableReplicas"}
    return _sample_workload(deployment, "deployment", "kube_deployment_spec_replicas", counts)


def _sample_stateful_set(stateful_set: Object) -> Iterator[_Sample]:
    counts = {**_REPLICA_COUNTS, "replicas_current": "currentReplicas"}
    return _sample_workload(stateful_set, "statefulset", "kube_statefulset_replicas", counts)


def _sample_workload(workload: Object, kind: str, desired: str, counts: Mapping[str, str]) -> Iterator[_Sample]:
    labels, status = {kind: workload["metadata"]["name"]}, workload.get("status", {})
    values = {desired: workload["spec"]["replicas"]}
    values |= {f"kube_{kind}_status_{metric}": status.get(field, 0) for metric, field in sorted(counts.items())}
    values[f"kube_{kind}_status_observed_generation"] = status.get("observedGeneration", 0)
    values[f"kube_{kind}_metadata_generation"] = workload["metadata"]["generation"]
    for metric, value in values.items():
        yield metric, None, None, labels, value


def _sample_replica_set(replica_set: Object) -> Iterator[_Sample]:
    labels = {"replicaset": replica_set["metadata"]["name"]}
    yield "kube_replicaset_spec_replicas", None, None, labels, replica_set["spec"]["replicas"]
    yield "kube_replicaset_status_ready_replicas", None, None, labels, replica_set["status"].get("readyReplicas", 0)


def _sample_pod(pod: Object) -> Iterator[_Sample]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    phase = status.get("phase", "Pending")
    for possible in POD_PHASES:
        yield "kube_pod_status_phase", name, None, {"phase": possible}, possible == phase
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    ready = conditions.get("Ready", {}).get("status") == "True"
    yield "kube_pod_status_ready", name, None, {"condition": "true"}, ready
    yield "kube_pod_status_ready", name, None, {"condition": "false"}, not ready
    unschedulable = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
    yield "kube_pod_status_unschedulable", name, None, {}, unschedulable
    for container in status.get("containerStatuses", []):
        yield from _sample_container(name, container)


def _sample_container(pod: str, status: dict[str, Any]) -> Iterator[_Sample]:
    name, state = status["name"], status["state"]
    yield "kube_pod_container_status_restarts_total", pod, name, {}, status["restartCount"]
    yield "kube_pod_container_status_ready", pod, name, {}, status["ready"]
    for kind in ("running", "waiting", "terminated"):
        yield f"kube_pod_container_status_{kind}", pod, name, {}, kind in state
    waiting = state.get("waiting", {}).get("reason")
    for reason in WAITING_REASONS:
        yield "kube_pod_container_status_waiting_reason", pod, name, {"reason": reason}, reason == waiting
    last = status.get("lastState", {}).get("terminated", {})
    for reason in TERMINATED_REASONS:
        is_last = reason == last.get("reason")
        yield "kube_pod_container_status_last_terminated_reason", pod, name, {"reason": reason}, is_last
    if last:
        yield "kube_pod_container_status_last_terminated_exitcode", pod, name, {}, last["exitCode"]


def _sample_endpoints(endpoints: Object) -> Iterator[_Sample]:
    subsets = endpoints.get("subsets") or []
    for ready, field in (("true", "addresses"), ("false", "notReadyAddresses")):
        count = sum(len(subset.get(field) or ()) for subset in subsets)
        yield "kube_endpoint_address", None, None, {"endpoint": endpoints["metadata"]["name"], "ready": ready}, count


def _sample_phases(resource: Object, kind: str, phases: Sequence[str]) -> Iterator[_Sample]:
    phase = resource.get("status", {}).get("phase")
    for possible in phases:
        labels = {kind: resource["metadata"]["name"], "phase": possible}
        yield f"kube_{kind}_status_phase", None, None, labels, possible == phase


_SAMPLES: dict[str, Callable[[Object], Iterator[_Sample]]] = {
    "Deployment": _sample_deployment,
    "StatefulSet": _sample_stateful_set,
    "ReplicaSet": _sample_replica_set,
    "Pod": _sample_pod,
    "Endpoints": _sample_endpoints,
    "PersistentVolumeClaim": lambda claim: _sample_phases(claim, "persistentvolumeclaim", CLAIM_PHASES),
    "PersistentVolume": lambda volume: _sample_phases(volume, "persistentvolume", VOLUME_PHASES),
}
