"""Which ports of a cluster's Services may be Prometheus, Jaeger or a receiver of spans, by their usual names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.telemetry.stack_objects import NAMESPACE, PART
from faultset.collector.spec.containers import SPANS_PORT

Services = Sequence[Mapping[str, Any]]

_PROMETHEUS = re.compile(r"(^|-)prometheus(-server|-operated|-k8s|-prometheus)?$")
_NO_PROMETHEUS = re.compile(r"exporter|alertmanager|pushgateway|operator|adapter|blackbox|kube-state|thanos|grafana")
_JAEGER = re.compile(r"jaeger|(^|-)simplest-query$")
_NO_JAEGER = re.compile(r"agent|operator|cassandra|elasticsearch|headless")
_RECEIVER = re.compile(r"jaeger|otel-?col|opentelemetry-collector|otel-agent|tempo|alloy")

_PROMETHEUS_PORTS = frozenset({80, 9090, 443})
_PROMETHEUS_PORT_NAMES = frozenset({"web", "http", "http-web", "https", "prometheus"})
_QUERY_PORTS = frozenset({16686})
_QUERY_PORT_NAMES = frozenset({"query", "http-query", "jaeger-query", "query-http", "jaeger-ui", "ui"})
_OTLP_PORTS = frozenset({SPANS_PORT})
_OTLP_PORT_NAMES = frozenset({"otlp-http", "otlphttp", "http-otlp"})


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of one Service that may be what is looked for."""

    namespace: str
    service: str
    port: int
    name: str
    place_rank: int

    @property
    def scheme(self) -> str:
        """How the port is spoken to."""
        return "https" if self.name.startswith("https") or self.port == 443 else "http"

    @property
    def place(self) -> str:
        """The port as users name it: NAMESPACE/SERVICE:PORT."""
        return f"{self.namespace}/{self.service}:{self.port}"


def prometheus_ports(services: Services) -> list[Port]:
    """Return the ports that may be Prometheus, the likeliest first."""
    return [
        port
        for port in _ports(services, _is_prometheus)
        if port.port in _PROMETHEUS_PORTS or port.name in _PROMETHEUS_PORT_NAMES
    ]


def jaeger_ports(services: Services) -> list[Port]:
    """Return the ports that may answer queries for Jaeger, the likeliest first."""
    return [
        port
        for port in _ports(services, _is_jaeger)
        if port.port in _QUERY_PORTS or port.name in _QUERY_PORT_NAMES or (port.port == 80 and "query" in port.service)
    ]


def receiver_ports(services: Services, home: str | None) -> list[Port]:
    """Return the ports that may receive spans over OTLP/HTTP, the likeliest first.

    Parameters
    ----------
    home
        Namespace of the Jaeger that is asked; the Jaeger of another namespace would keep the spans to itself.
    """
    ports = [
        port
        for port in _ports(services, lambda service: _RECEIVER.search(service["metadata"]["name"]) is not None)
        if (port.port in _OTLP_PORTS or port.name in _OTLP_PORT_NAMES)
        and not (home is not None and port.namespace != home and "jaeger" in port.service)
    ]
    return sorted(
        ports, key=lambda port: (port.namespace != home, port.place_rank, "jaeger" not in port.service, port.place)
    )


def tried(ports: Sequence[Port], looked_for: str) -> str:
    """Return which ports did not answer, or what was looked for where there are none."""
    if not ports:
        return f"looked for {looked_for}"
    places = sorted({port.place for port in ports})
    return f"{', '.join(places[:3])}{' and more' if len(places) > 3 else ''} did not answer"


def _ports(services: Services, wanted: Callable[[Mapping[str, Any]], bool]) -> list[Port]:
    made = [
        Port(
            namespace=service["metadata"]["namespace"],
            service=service["metadata"]["name"],
            port=int(port["port"]),
            name=str(port.get("name") or ""),
            place_rank=_rank(service),
        )
        for service in services
        if wanted(service)
        for port in service["spec"].get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    ]
    return sorted(made, key=lambda port: (port.place_rank, port.place))


def _rank(service: Mapping[str, Any]) -> int:
    """Prefer the stack that we have installed for everyone, avoid those that tests have installed."""
    is_ours = PART in (service["metadata"].get("labels") or {})
    return (0 if service["metadata"]["namespace"] == NAMESPACE else 2) if is_ours else 1


def _is_prometheus(service: Mapping[str, Any]) -> bool:
    name, labels = service["metadata"]["name"], service["metadata"].get("labels") or {}
    if _NO_PROMETHEUS.search(name.removeprefix("prometheus-operated")):
        return False
    return _PROMETHEUS.search(name) is not None or labels.get("app.kubernetes.io/name") == "prometheus"


def _is_jaeger(service: Mapping[str, Any]) -> bool:
    name, labels = service["metadata"]["name"], service["metadata"].get("labels") or {}
    if _NO_JAEGER.search(name):
        return False
    return _JAEGER.search(name) is not None or "jaeger" in (labels.get("app.kubernetes.io/name"), labels.get("app"))
