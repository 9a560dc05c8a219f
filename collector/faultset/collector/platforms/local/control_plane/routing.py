"""What the relay and the telemetry process have to know of the objects, as pure functions of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.api.pod_state import is_active, is_ready
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.control_plane.addresses import AddressBlock
from faultset.collector.platforms.local.controllers.services import HEADLESS, target_port
from faultset.collector.platforms.local.relay.messages import ConfigureRelay, PodImpairment, RelayRoute, Target
from faultset.collector.platforms.local.telemetry.messages import ScrapeTarget
from faultset.collector.spec.containers import METRICS_PORT, SPANS_PORT


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
