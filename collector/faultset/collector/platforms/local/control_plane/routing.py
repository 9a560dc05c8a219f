"""What the relay and the telemetry process have to know of the objects, as pure functions of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from faultset.collector.platforms.api.objects import Object
from faultset.collector.platforms.local.api_server.object_store import ObjectStore
from faultset.collector.platforms.local.control_plane.addresses import AddressBlock
from faultset.collector.platforms.observation.timestamps import parse_rfc3339_ns

SPANS_PORT = 4318


def relay_state(
    store: ObjectStore, addresses: AddressBlock, impairments: list[dict[str, Any]], seed: int
) -> dict[str, Any]:
    """Return the full configuration of the relay."""
    pods = {pod["status"]["podIP"]: pod["metadata"]["name"] for pod in _placed(store)}
    spans = {"pod": None, "ip": addresses.spans_out, "port": SPANS_PORT}
    forwards = [{"name": "spans", "ip": addresses.spans_in, "port": SPANS_PORT, "targets": [spans]}]
    for service in store.each("Service"):
        forwards += _service_forwards(store, service)
    for pod in _placed(store):
        port = scrape_port(pod)
        if port is not None:
            address = pod["status"]["podIP"]
            target = {"pod": pod["metadata"]["name"], "ip": address, "port": port}
            forward = {"name": f"metrics of {target['pod']}", "ip": addresses.scrape(address), "port": port}
            forwards.append({**forward, "targets": [target]})
    return {"pods": pods, "forwards": forwards, "impairments": impairments, "seed": seed}


def _service_forwards(store: ObjectStore, service: Object) -> list[dict[str, Any]]:
    name, address = service["metadata"]["name"], service["spec"].get("clusterIP")
    endpoints = store.find("Endpoints", name)
    if not address or endpoints is None:
        return []
    made = []
    for place, port in enumerate(service["spec"].get("ports", [])):
        targets = [
            {"pod": ready["targetRef"]["name"], "ip": ready["ip"], "port": subset["ports"][place]["port"]}
            for subset in endpoints["subsets"]
            for ready in subset["addresses"]
            if subset["ports"][place]["port"]
        ]
        made.append({"name": f"{name}:{port['port']}", "ip": address, "port": port["port"], "targets": targets})
    return made


def telemetry_pods(
    store: ObjectStore, addresses: AddressBlock, service_of: Callable[[Mapping[str, Any]], str | None]
) -> list[dict[str, Any]]:
    """Return the pods that the telemetry process has to know."""
    made = []
    for pod in _placed(store):
        port = scrape_port(pod)
        made.append(
            {
                "pod": pod["metadata"]["name"],
                "service": service_of(pod),
                "container": pod["spec"]["containers"][0]["name"],
                "scrape": None if port is None else [addresses.scrape(pod["status"]["podIP"]), port],
                "started_ns": parse_rfc3339_ns(pod["status"]["startTime"]),
            }
        )
    return made


def hosts(store: ObjectStore) -> dict[str, str]:
    """Return the address of every Service by name."""
    return {
        service["metadata"]["name"]: service["spec"]["clusterIP"]
        for service in store.each("Service")
        if service["spec"].get("clusterIP")
    }


def scrape_port(pod: Object) -> int | None:
    """Return the port of a pod's metrics as its annotations name it; None when it has none."""
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get("prometheus.io/scrape") != "true":
        return None
    return int(annotations.get("prometheus.io/port", 9464))


def _placed(store: ObjectStore) -> list[Object]:
    return [pod for pod in store.each("Pod") if pod.get("status", {}).get("podIP")]
