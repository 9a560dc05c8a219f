"""Find the Prometheus, the Jaeger and the span receiver of a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.client import Api, UnexpectedStatus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, ProxiedEndpoint, UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry.stack_objects import NAMESPACE, PART_LABEL
from faultset.collector.spec.containers import SPANS_PORT
from faultset.core.errors import PlatformError, UsageError

Services = Sequence[Mapping[str, Any]]

_PROMETHEUS = re.compile(r"(^|-)prometheus(-server|-operated|-k8s|-prometheus)?$")
_NOT_PROMETHEUS = re.compile(r"exporter|alertmanager|pushgateway|operator|adapter|blackbox|kube-state|thanos|grafana")
_JAEGER = re.compile(r"jaeger|(^|-)simplest-query$")
_NOT_JAEGER = re.compile(r"agent|operator|cassandra|elasticsearch|headless")
_RECEIVER = re.compile(r"jaeger|otel-?col|opentelemetry-collector|otel-agent|tempo|alloy")

_PROMETHEUS_PORTS = frozenset({80, 9090, 443, "web", "http", "http-web", "https", "prometheus"})
_QUERY_PORTS = frozenset({16686, "query", "http-query", "jaeger-query", "query-http", "jaeger-ui", "ui"})
_OTLP_PORTS = frozenset({SPANS_PORT, "otlp-http", "otlphttp", "http-otlp"})
"""Numbers and names of the servers' ports."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """A port of a Service that may be a telemetry server."""

    namespace: str
    service: str
    port: int
    name: str
    priority: int

    @property
    def scheme(self) -> str:
        return "https" if self.name.startswith("https") or self.port == 443 else "http"

    @property
    def address(self) -> str:
        """The port as NAMESPACE/SERVICE:PORT."""
        return f"{self.namespace}/{self.service}:{self.port}"


def prometheus_ports(services: Services) -> list[Port]:
    """Return the ports that may be Prometheus, most likely first."""
    return [port for port in _ports(services, _is_prometheus) if {port.port, port.name} & _PROMETHEUS_PORTS]


def jaeger_ports(services: Services) -> list[Port]:
    """Return the ports that may be Jaeger's query API, most likely first."""
    return [
        port
        for port in _ports(services, _is_jaeger)
        if {port.port, port.name} & _QUERY_PORTS or (port.port == 80 and "query" in port.service)
    ]


def receiver_ports(services: Services, jaeger_namespace: str | None) -> list[Port]:
    """Return the ports that may receive spans over OTLP/HTTP, most likely first.

    Parameters
    ----------
    jaeger_namespace
        Namespace of the chosen Jaeger. Receivers of a Jaeger in another namespace are excluded, because the chosen
        Jaeger would not get the spans that they receive.
    """
    ports = [
        port
        for port in _ports(services, lambda service: _RECEIVER.search(service["metadata"]["name"]) is not None)
        if {port.port, port.name} & _OTLP_PORTS
        and not (jaeger_namespace is not None and port.namespace != jaeger_namespace and "jaeger" in port.service)
    ]
    return sorted(
        ports,
        key=lambda port: (
            port.namespace != jaeger_namespace,
            port.priority,
            "jaeger" not in port.service,
            port.address,
        ),
    )


def describe_search(ports: Sequence[Port], names: str) -> str:
    """Return the ports that did not respond, or the searched names if no port was found."""
    if not ports:
        return f"searched for {names}"
    addresses = sorted({port.address for port in ports})
    return f"{', '.join(addresses[:3])}{' and more' if len(addresses) > 3 else ''} did not respond"


def _ports(services: Services, matches: Callable[[Mapping[str, Any]], bool]) -> list[Port]:
    ports = [
        Port(
            namespace=service["metadata"]["namespace"],
            service=service["metadata"]["name"],
            port=int(port["port"]),
            name=str(port.get("name") or ""),
            priority=_rank(service),
        )
        for service in services
        if matches(service)
        for port in service["spec"].get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    ]
    return sorted(ports, key=lambda port: (port.priority, port.address))


def _rank(service: Mapping[str, Any]) -> int:
    """Return 0 for the stack that we install, 1 for other Services, 2 for stacks of tests."""
    is_ours = PART_LABEL in (service["metadata"].get("labels") or {})
    return (0 if service["metadata"]["namespace"] == NAMESPACE else 2) if is_ours else 1


def _is_prometheus(service: Mapping[str, Any]) -> bool:
    name, labels = service["metadata"]["name"], service["metadata"].get("labels") or {}
    if _NOT_PROMETHEUS.search(name.removeprefix("prometheus-operated")):
        return False
    return _PROMETHEUS.search(name) is not None or labels.get("app.kubernetes.io/name") == "prometheus"


def _is_jaeger(service: Mapping[str, Any]) -> bool:
    name, labels = service["metadata"]["name"], service["metadata"].get("labels") or {}
    if _NOT_JAEGER.search(name):
        return False
    return _JAEGER.search(name) is not None or "jaeger" in (labels.get("app.kubernetes.io/name"), labels.get("app"))


_IN_CLUSTER = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)(:(?P<port>[a-z0-9-]+))?(?P<prefix>/.*)?")


@dataclass(frozen=True, kw_only=True)
class TelemetryServers:
    """The telemetry servers of an episode.

    Attributes
    ----------
    otlp_http
        URL to which pods send spans, such as http://jaeger.observe:4318.
    choices
        Sentences about the chosen servers and the reasons.
    """

    prometheus: Endpoint
    jaeger: Endpoint
    otlp_http: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Server:
    """How to find and check one kind of server."""

    kind: str
    token_variable: str
    option: str
    ports: Callable[[Services], list[Port]]
    service_names: str
    prefixes: Sequence[str]
    check: Callable[[Endpoint], None]


def _check_prometheus(endpoint: Endpoint) -> None:
    response = endpoint.get("/api/v1/query", {"query": "vector(1)"})
    if not isinstance(response, Mapping) or response.get("status") != "success":
        raise PlatformError(f"{endpoint.name} does not respond like Prometheus; correct its address")


def _check_jaeger(endpoint: Endpoint) -> None:
    response = endpoint.get("/api/services")
    if not isinstance(response, Mapping) or "data" not in response:
        raise PlatformError(f"{endpoint.name} does not respond like Jaeger; correct its address")


_PROMETHEUS_SERVER = _Server(
    kind="Prometheus",
    token_variable="FAULTSET_PROMETHEUS_TOKEN",
    option="--prometheus-url",
    ports=prometheus_ports,
    service_names="prometheus-server, prometheus-operated, *-prometheus, prometheus-k8s",
    prefixes=("", "/prometheus"),
    check=_check_prometheus,
)
_JAEGER_SERVER = _Server(
    kind="Jaeger",
    token_variable="FAULTSET_JAEGER_TOKEN",
    option="--jaeger-url",
    ports=jaeger_ports,
    service_names="jaeger, jaeger-query, *-query with port 16686",
    prefixes=("", "/jaeger/ui", "/jaeger"),
    check=_check_jaeger,
)


def discover(api: Api, *, prometheus_url: str | None = None, jaeger_url: str | None = None) -> TelemetryServers:
    """Find Prometheus, Jaeger and a span receiver, and check that they respond.

    Parameters
    ----------
    prometheus_url, jaeger_url
        A URL that the collector can reach, or NAMESPACE/SERVICE:PORT/PREFIX in the cluster; None to search. Credentials
        come from the URL or, as a bearer token, from FAULTSET_PROMETHEUS_TOKEN or FAULTSET_JAEGER_TOKEN.

    Raises
    ------
    PlatformError
        No server was found; the message says where the search looked and how to fix it.
    """
    services = _services(api)
    choices: list[str] = []
    prometheus = _choose_prometheus(api, services, prometheus_url, choices)
    jaeger = _choose_jaeger(api, services, jaeger_url, choices)
    return TelemetryServers(
        prometheus=prometheus,
        jaeger=jaeger,
        otlp_http=_find_receiver(api, services, jaeger, choices),
        choices=tuple(choices),
    )


def find_prometheus(api: Api, url: str | None = None) -> tuple[Endpoint, str]:
    """Return the chosen Prometheus and the reason for the choice; raise PlatformError if none responds."""
    choices: list[str] = []
    return _choose_prometheus(api, _services(api), url, choices), choices[0]


def find_jaeger(api: Api, url: str | None = None) -> tuple[Endpoint, str, str]:
    """Return the chosen Jaeger, the URL for spans and the reasons; raise PlatformError if no Jaeger responds."""
    choices: list[str] = []
    services = _services(api)
    jaeger = _choose_jaeger(api, services, url, choices)
    return jaeger, _find_receiver(api, services, jaeger, choices), "; ".join(choices)


def find_jaeger_query(api: Api, url: str) -> Endpoint:
    """Return the query API of a Jaeger at an address; raise PlatformError if it does not respond."""
    return _use_address(api, _services(api), _JAEGER_SERVER, url, [])


def _services(api: Api) -> list[dict[str, Any]]:
    return api.get("/api/v1/services")["items"]


def _choose_prometheus(api: Api, services: Services, url: str | None, choices: list[str]) -> Endpoint:
    if url is not None:
        return _use_address(api, services, _PROMETHEUS_SERVER, url, choices)
    candidates = _find_endpoints(api, services, _PROMETHEUS_SERVER)
    preferred = [endpoint for endpoint in candidates if _has_containers(endpoint)]
    choice = (preferred or candidates)[0]
    reason = "it has container metrics" if preferred else "it responds, but has no container metrics"
    choices.append(f"{choice.name}: {reason}{_list_others(candidates, choice)}")
    return choice


def _choose_jaeger(api: Api, services: Services, url: str | None, choices: list[str]) -> Endpoint:
    if url is not None:
        return _use_address(api, services, _JAEGER_SERVER, url, choices)
    candidates = _find_endpoints(api, services, _JAEGER_SERVER)
    choices.append(f"{candidates[0].name}: it responds{_list_others(candidates, candidates[0])}")
    return candidates[0]


def _use_address(api: Api, services: Services, server: _Server, url: str, choices: list[str]) -> Endpoint:
    endpoint = _open_address(api, services, url, server)
    server.check(endpoint)
    choices.append(f"{endpoint.name}, as configured")
    return endpoint


def _find_endpoints(api: Api, services: Services, server: _Server) -> list[Endpoint]:
    """Return the servers that respond, at most one per Service; raise PlatformError if there is none."""
    ports = server.ports(services)
    endpoints: dict[tuple[str, str], Endpoint] = {}
    for port in ports:
        for prefix in server.prefixes:
            service = port.namespace, port.service
            if service not in endpoints and _responds(
                server, _open_port(api, port, server.kind, prefix, retry_timeout_s=0.0)
            ):
                endpoints[service] = _open_port(api, port, server.kind, prefix)
    if not endpoints:
        raise PlatformError(
            f"no responding {server.kind} found among the cluster's {len(services)} Services "
            f"({describe_search(ports, server.service_names)}); install one with --install-telemetry, or set "
            f"{server.option}"
        )
    return list(endpoints.values())


def _responds(server: _Server, endpoint: Endpoint) -> bool:
    try:
        server.check(endpoint)
    except PlatformError:
        return False
    return True


def _find_receiver(api: Api, services: Services, jaeger: Endpoint, choices: list[str]) -> str:
    """Return the URL to which pods send spans: Jaeger, its collector, or an OpenTelemetry collector."""
    ports = receiver_ports(services, getattr(jaeger, "namespace", None))
    for port in ports:
        if _listens(api, port):
            url = f"http://{port.service}.{port.namespace}:{port.port}"
            choices.append(f"pods send spans to {url}")
            return url
    raise PlatformError(
        "no receiver of spans over OTLP/HTTP found "
        f"({describe_search(ports, 'port 4318 of jaeger, jaeger-collector, otel-collector')}); open port 4318 of "
        "Jaeger's collector, or install one with --install-telemetry"
    )


def _open_port(api: Api, port: Port, kind: str, prefix: str, retry_timeout_s: float | None = None) -> ProxiedEndpoint:
    return ProxiedEndpoint(
        api,
        kind=kind,
        namespace=port.namespace,
        service=port.service,
        port=port.port,
        prefix=prefix,
        scheme=port.scheme,
        retry_timeout_s=retry_timeout_s,
    )


def _open_address(api: Api, services: Services, url: str, server: _Server) -> Endpoint:
    kind = server.kind
    if "://" in url:
        return UrlEndpoint(url, kind=kind, token_variable=server.token_variable)
    match = _IN_CLUSTER.fullmatch(url)
    if match is None:
        raise UsageError(f'the address of {kind} must be a URL or NAMESPACE/SERVICE:PORT, got "{url}"')
    port: int | str | None = match["port"]
    for service in services:
        name = service["metadata"]["namespace"], service["metadata"]["name"]
        if port is None and name == (match["namespace"], match["service"]):
            port = service["spec"]["ports"][0]["port"]
    if port is None:
        raise PlatformError(f"the service {url} for {kind} does not exist; see `kubectl get services -A`")
    return ProxiedEndpoint(
        api, kind=kind, namespace=match["namespace"], service=match["service"], port=port, prefix=match["prefix"] or ""
    )


def _has_containers(endpoint: Endpoint) -> bool:
    try:
        response = endpoint.get("/api/v1/query", {"query": "count(container_cpu_usage_seconds_total)"})
        return bool(response["data"]["result"])
    except (PlatformError, KeyError, TypeError):
        return False


def _listens(api: Api, port: Port) -> bool:
    """Return whether an HTTP server listens on the port; a span receiver rejects a GET request with 400, 405 or 415."""
    path = f"/api/v1/namespaces/{port.namespace}/services/{port.service}:{port.port}/proxy/v1/traces"
    try:
        api.call("GET", path, retry_timeout_s=0.0, timeout_s=5.0)
    except UnexpectedStatus as error:
        return error.status in (400, 405, 415)
    except PlatformError:
        return False
    return True


def _list_others(candidates: Sequence[Endpoint], choice: Endpoint) -> str:
    others = [endpoint.name.partition(" at ")[2] for endpoint in candidates if endpoint is not choice]
    return f"; also found: {', '.join(others)}" if others else ""
