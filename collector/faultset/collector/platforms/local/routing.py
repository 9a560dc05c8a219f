"""Addresses, the relay's routes, and what telemetry scrapes: all computed from the objects."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from faultset.collector.platforms.cluster.cluster import HEADLESS, target_port
from faultset.collector.platforms.cluster.object_store import ObjectStore
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.local.relay.messages import ConfigureRelay, PodImpairment, RelayRoute, Target
from faultset.collector.platforms.local.telemetry.source import ScrapeTarget, StateSample
from faultset.collector.platforms.objects import Object, is_active, is_ready
from faultset.collector.sources.metric_store import (
    CLAIM_PHASES,
    POD_PHASES,
    TERMINATED_REASONS,
    VOLUME_PHASES,
    WAITING_REASONS,
)
from faultset.collector.spec.containers import METRICS_PORT, SPANS_PORT
from faultset.core.errors import PlatformError

FIRST_BLOCK, LAST_BLOCK = 10, 250
_CLAIM_PORT = 19_119
_RELAYED_OFFSET = 100


class AddressBlock:
    """The addresses 127.A.0.0/16 of one episode, owned for as long as a socket listens on its last one.

    Parameters
    ----------
    number
        A; None takes a free one.

    Raises
    ------
    PlatformError
        The block is taken, or all are.
    """

    def __init__(self, number: int | None = None):
        choices = [number] if number is not None else _shuffled_blocks()
        for choice in choices:
            claimed = _claim(choice)
            if claimed is not None:
                self.number, self._socket = choice, claimed
                break
        else:
            raise PlatformError(
                f"no free addresses: {'127.' + str(number) + '.0.0/16 is' if number is not None else 'all blocks are'} "
                "in use by other episodes; wait for them or end them with `faultset recover`"
            )
        self._services = 0
        self._pods = 0

    @property
    def spans_in(self) -> str:
        """Address to which pods send their spans."""
        return f"127.{self.number}.250.1"

    @property
    def spans_out(self) -> str:
        """Address on which the telemetry process receives them."""
        return f"127.{self.number}.250.2"

    @property
    def load(self) -> str:
        """Address from which the load sends."""
        return f"127.{self.number}.250.3"

    @property
    def spare(self) -> str:
        """Address that is used only to try ports."""
        return f"127.{self.number}.250.4"

    def service(self) -> str:
        """Return an unused address for a Service."""
        self._services += 1
        if self._services > 254:
            raise PlatformError("an episode has room for 254 Services; the application has more")
        return f"127.{self.number}.0.{self._services}"

    def pod(self) -> str:
        """Return an unused address for a pod; none is used twice in an episode."""
        block, last = divmod(self._pods, 254)
        self._pods += 1
        if block >= _RELAYED_OFFSET - 1:
            raise PlatformError("the episode has used up its addresses for pods; more than 25000 were made")
        return f"127.{self.number}.{1 + block}.{1 + last}"

    @staticmethod
    def relayed(pod_address: str) -> str:
        """Return the address through which the pod at `pod_address` itself is reached, behind whatever Service."""
        first, number, block, last = pod_address.split(".")
        return f"{first}.{number}.{int(block) + _RELAYED_OFFSET}.{last}"

    def check_ports(self, ports: Iterable[int]) -> None:
        """Raise PlatformError when a program listens on one of the ports at every address of this machine."""
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
        """Let others have the block; may be called twice."""
        self._socket.close()


def _shuffled_blocks() -> list[int]:
    """Begin somewhere else in every process, so that a block just freed rests for a while."""
    blocks = list(range(FIRST_BLOCK, LAST_BLOCK + 1))
    random.Random(f"{os.getpid()} {os.times().elapsed}").shuffle(blocks)
    return blocks


def _claim(number: int) -> socket.socket | None:
    held = socket.socket()
    try:
        held.bind((f"127.{number}.255.254", _CLAIM_PORT))
        held.listen(1)
    except OSError:
        held.close()
        return None
    return held


def relay_configuration(
    store: ObjectStore, addresses: AddressBlock, impairments: Mapping[str, Impairment], seed: int
) -> ConfigureRelay:
    """Return the full configuration of the relay; impairments are by the name of a pod."""
    spans = Target(pod=None, ip=addresses.spans_out, port=SPANS_PORT)
    routes = [RelayRoute(name="spans", ip=addresses.spans_in, port=SPANS_PORT, targets=(spans,))]
    for service in store.each("Service"):
        routes += _service_routes(store, service)
    for pod in _placed(store):
        port = scrape_port(pod)
        if port is not None:
            name, address = pod["metadata"]["name"], pod["status"]["podIP"]
            target = Target(pod=name, ip=address, port=port)
            routes.append(
                RelayRoute(name=f"metrics of {name}", ip=addresses.relayed(address), port=port, targets=(target,))
            )
    return ConfigureRelay(
        pods={pod["status"]["podIP"]: pod["metadata"]["name"] for pod in _placed(store)},
        routes=tuple(routes),
        impairments=tuple(PodImpairment(pod=pod, impairment=one) for pod, one in impairments.items()),
        seed=seed,
    )


def _service_routes(store: ObjectStore, service: Object) -> list[RelayRoute]:
    name, address = service["metadata"]["name"], service["spec"].get("clusterIP")
    endpoints = store.find("Endpoints", name)
    if not address or endpoints is None:
        return []
    if address == HEADLESS:
        return _pod_routes(store, service)
    made = []
    for place, port in enumerate(service["spec"].get("ports", [])):
        targets = tuple(
            Target(pod=ready["targetRef"]["name"], ip=ready["ip"], port=int(subset["ports"][place]["port"]))
            for subset in endpoints["subsets"]
            for ready in subset["addresses"]
            if subset["ports"][place]["port"]
        )
        made.append(RelayRoute(name=f"{name}:{port['port']}", ip=address, port=int(port["port"]), targets=targets))
    return made


def _pod_routes(store: ObjectStore, service: Object) -> list[RelayRoute]:
    """Return a route to each pod that has a name of its own behind a headless Service, on each of its ports."""
    made = []
    for name, pod in named_pods(store, service):
        ip = pod["status"]["podIP"]
        for port in service["spec"].get("ports", []):
            targets = (Target(pod=pod["metadata"]["name"], ip=ip, port=target_port(port, pod)),)
            address, number = AddressBlock.relayed(ip), int(port["port"])
            made.append(RelayRoute(name=f"{name}:{number}", ip=address, port=number, targets=targets))
    return made


def named_pods(store: ObjectStore, service: Object) -> Iterator[tuple[str, Object]]:
    """Yield the pods that have a name of their own behind a headless Service, with the name."""
    name, spec = service["metadata"]["name"], service["spec"]
    if spec.get("clusterIP") != HEADLESS or not spec.get("selector"):
        return
    for pod in store.each("Pod", spec["selector"]):
        has_name = pod["spec"].get("hostname") and pod["spec"].get("subdomain") == name
        shows = is_ready(pod) or spec.get("publishNotReadyAddresses")
        if has_name and shows and is_active(pod) and pod.get("status", {}).get("podIP"):
            yield f"{pod['spec']['hostname']}.{name}", pod


def scrape_targets(
    store: ObjectStore, addresses: AddressBlock, service_of: Callable[[Mapping[str, Any]], str | None]
) -> tuple[ScrapeTarget, ...]:
    """Return the pods that the telemetry process has to know."""
    made = []
    for pod in _placed(store):
        port = scrape_port(pod)
        made.append(
            ScrapeTarget(
                pod=pod["metadata"]["name"],
                service=service_of(pod),
                container=pod["spec"]["containers"][0]["name"],
                address=None if port is None else (addresses.relayed(pod["status"]["podIP"]), port),
            )
        )
    return tuple(made)


def hosts(store: ObjectStore) -> dict[str, str]:
    """Return the address of every Service by name, and of every pod that has a name behind a headless Service."""
    found: dict[str, str] = {}
    for service in store.each("Service"):
        name, address = service["metadata"]["name"], service["spec"].get("clusterIP")
        if address and address != HEADLESS:
            found[name] = address
        for pod_name, pod in named_pods(store, service):
            found[pod_name] = AddressBlock.relayed(pod["status"]["podIP"])
            found.setdefault(name, found[pod_name])
    return found


def scrape_port(pod: Object) -> int | None:
    """Return the port of a pod's metrics as its annotations name it; None when it has none."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get("prometheus.io/scrape") != "true":
        return None
    return int(annotations.get("prometheus.io/port", METRICS_PORT))


def _placed(store: ObjectStore) -> list[Object]:
    return [pod for pod in store.each("Pod") if pod.get("status", {}).get("podIP")]


def state_samples(store: ObjectStore, service_of: Callable[[Mapping[str, Any]], str | None]) -> tuple[StateSample, ...]:
    """Return one sample of every series, in a stable order."""
    made: list[StateSample] = []
    for kind, samples in _SAMPLES.items():
        for found in store.each(kind):
            service = service_of(found)
            for metric, pod, container, labels, value in samples(found):
                series_kind = "counter" if metric.endswith("_total") else "gauge"
                made.append(
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
    return tuple(made)


_Sample = tuple[str, str | None, str | None, dict[str, str], float]


def _deployment(found: Object) -> Iterator[_Sample]:
    labels = {"deployment": found["metadata"]["name"]}
    status = found.get("status", {})
    values = {
        "kube_deployment_spec_replicas": found["spec"]["replicas"],
        "kube_deployment_status_replicas": status.get("replicas", 0),
        "kube_deployment_status_replicas_available": status.get("availableReplicas", 0),
        "kube_deployment_status_replicas_ready": status.get("readyReplicas", 0),
        "kube_deployment_status_replicas_unavailable": status.get("unavailableReplicas", 0),
        "kube_deployment_status_replicas_updated": status.get("updatedReplicas", 0),
        "kube_deployment_status_observed_generation": status.get("observedGeneration", 0),
        "kube_deployment_metadata_generation": found["metadata"]["generation"],
    }
    for metric, value in values.items():
        yield metric, None, None, labels, value


def _stateful_set(found: Object) -> Iterator[_Sample]:
    labels = {"statefulset": found["metadata"]["name"]}
    status = found.get("status", {})
    values = {
        "kube_statefulset_replicas": found["spec"]["replicas"],
        "kube_statefulset_status_replicas": status.get("replicas", 0),
        "kube_statefulset_status_replicas_available": status.get("availableReplicas", 0),
        "kube_statefulset_status_replicas_current": status.get("currentReplicas", 0),
        "kube_statefulset_status_replicas_ready": status.get("readyReplicas", 0),
        "kube_statefulset_status_replicas_updated": status.get("updatedReplicas", 0),
        "kube_statefulset_status_observed_generation": status.get("observedGeneration", 0),
        "kube_statefulset_metadata_generation": found["metadata"]["generation"],
    }
    for metric, value in values.items():
        yield metric, None, None, labels, value


def _replica_set(found: Object) -> Iterator[_Sample]:
    labels = {"replicaset": found["metadata"]["name"]}
    yield "kube_replicaset_spec_replicas", None, None, labels, found["spec"]["replicas"]
    yield "kube_replicaset_status_ready_replicas", None, None, labels, found["status"].get("readyReplicas", 0)


def _pod(found: Object) -> Iterator[_Sample]:
    name, status = found["metadata"]["name"], found.get("status", {})
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
        yield from _container(name, container)


def _container(pod: str, status: dict[str, Any]) -> Iterator[_Sample]:
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


def _endpoints(found: Object) -> Iterator[_Sample]:
    subsets = found.get("subsets") or []
    for ready, field in (("true", "addresses"), ("false", "notReadyAddresses")):
        count = sum(len(subset.get(field) or ()) for subset in subsets)
        yield "kube_endpoint_address", None, None, {"endpoint": found["metadata"]["name"], "ready": ready}, count


def _kube_state_claim(found: Object) -> Iterator[_Sample]:
    phase = found.get("status", {}).get("phase")
    for possible in CLAIM_PHASES:
        labels = {"persistentvolumeclaim": found["metadata"]["name"], "phase": possible}
        yield "kube_persistentvolumeclaim_status_phase", None, None, labels, possible == phase


def _volume(found: Object) -> Iterator[_Sample]:
    phase = found.get("status", {}).get("phase")
    for possible in VOLUME_PHASES:
        labels = {"persistentvolume": found["metadata"]["name"], "phase": possible}
        yield "kube_persistentvolume_status_phase", None, None, labels, possible == phase


_SAMPLES: dict[str, Callable[[Object], Iterator[_Sample]]] = {
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "Pod": _pod,
    "Endpoints": _endpoints,
    "PersistentVolumeClaim": _kube_state_claim,
    "PersistentVolume": _volume,
}
