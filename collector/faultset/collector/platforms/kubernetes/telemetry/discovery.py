"""Which Prometheus and which Jaeger of the cluster are asked: those that answer, or that the user names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.client import Api, UnexpectedStatus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint, ProxiedEndpoint, UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry.stack_objects import NAMESPACE, PART
from faultset.collector.spec.containers import SPANS_PORT
from faultset.core.errors import PlatformError, UsageError

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


PROMETHEUS_TOKEN = "FAULTSET_PROMETHEUS_TOKEN"
JAEGER_TOKEN = "FAULTSET_JAEGER_TOKEN"

_IN_CLUSTER = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)(:(?P<port>[a-z0-9-]+))?(?P<prefix>/.*)?")


@dataclass(frozen=True, kw_only=True)
class TelemetryServers:
    """The servers that an episode's telemetry is read from.

    Attributes
    ----------
    otlp_http
        Where pods send their spans, as they see it: http://jaeger.observe:4318.
    choices
        Sentences on what was chosen and why.
    """

    prometheus: Endpoint
    jaeger: Endpoint
    otlp_http: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Server:
    """What tells one kind of server from the other."""

    what: str
    token_variable: str
    option: str
    ports: Callable[[Services], list[Port]]
    looked_for: str
    prefixes: Sequence[str]
    ask: Callable[[Endpoint], None]


def _ask_prometheus(endpoint: Endpoint) -> None:
    answer = endpoint.get("/api/v1/query", {"query": "vector(1)"})
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        raise PlatformError(f"{endpoint.name} does not answer as Prometheus does; correct its address")


def _ask_jaeger(endpoint: Endpoint) -> None:
    answer = endpoint.get("/api/services")
    if not isinstance(answer, Mapping) or "data" not in answer:
        raise PlatformError(f"{endpoint.name} does not answer as Jaeger does; correct its address")


_PROMETHEUS_SERVER = _Server(
    what="Prometheus",
    token_variable=PROMETHEUS_TOKEN,
    option="--prometheus-url",
    ports=prometheus_ports,
    looked_for="prometheus-server, prometheus-operated, *-prometheus, prometheus-k8s",
    prefixes=("", "/prometheus"),
    ask=_ask_prometheus,
)
_JAEGER_SERVER = _Server(
    what="Jaeger",
    token_variable=JAEGER_TOKEN,
    option="--jaeger-url",
    ports=jaeger_ports,
    looked_for="jaeger, jaeger-query, *-query with port 16686",
    prefixes=("", "/jaeger/ui", "/jaeger"),
    ask=_ask_jaeger,
)


def discover(
    api: Api,
    *,
    prometheus_url: str | None = None,
    jaeger_url: str | None = None,
    otlp_url: str | None = None,
) -> TelemetryServers:
    """Find Prometheus, Jaeger and a receiver of spans, and make sure that they answer.

    Parameters
    ----------
    prometheus_url, jaeger_url
        Addresses that the collector can reach, with user and password if need be (or a token in
        FAULTSET_PROMETHEUS_TOKEN or FAULTSET_JAEGER_TOKEN); or NAMESPACE/SERVICE:PORT/PREFIX in the cluster.
    otlp_url
        Where pods send spans, if not to what is found.

    Raises
    ------
    PlatformError
        Something is missing; says what was looked for and what to do.
    """
    services = _services(api)
    choices: list[str] = []
    prometheus = _prometheus(api, services, prometheus_url, choices)
    jaeger = _jaeger(api, services, jaeger_url, choices)
    return TelemetryServers(
        prometheus=prometheus,
        jaeger=jaeger,
        otlp_http=otlp_url.rstrip("/") if otlp_url else _receiver(api, services, jaeger, choices),
        choices=tuple(choices),
    )


def find_prometheus(api: Api, url: str | None = None) -> tuple[Endpoint, str]:
    """Return a Prometheus that answers and why it was chosen; raise PlatformError."""
    choices: list[str] = []
    return _prometheus(api, _services(api), url, choices), choices[0]


def find_jaeger(api: Api, url: str | None = None) -> tuple[Endpoint, str, str]:
    """Return a Jaeger that answers, where pods send spans, and why both were chosen; raise PlatformError."""
    choices: list[str] = []
    services = _services(api)
    jaeger = _jaeger(api, services, url, choices)
    return jaeger, _receiver(api, services, jaeger, choices), "; ".join(choices)


def _services(api: Api) -> list[dict[str, Any]]:
    return api.get("/api/v1/services")["items"]


def _prometheus(api: Api, services: Services, url: str | None, choices: list[str]) -> Endpoint:
    if url is not None:
        return _given(api, services, _PROMETHEUS_SERVER, url, choices)
    answering = _answering(api, services, _PROMETHEUS_SERVER)
    with_containers = [one for one in answering if _has_containers(one)]
    chosen = (with_containers or answering)[0]
    why = "it has container metrics" if with_containers else "it answers, but it has no container metrics"
    choices.append(f"{chosen.name}: {why}{_others(answering, chosen)}")
    return chosen


def _jaeger(api: Api, services: Services, url: str | None, choices: list[str]) -> Endpoint:
    if url is not None:
        return _given(api, services, _JAEGER_SERVER, url, choices)
    answering = _answering(api, services, _JAEGER_SERVER)
    chosen = answering[0]
    choices.append(f"{chosen.name}: it answers{_others(answering, chosen)}")
    return chosen


def _given(api: Api, services: Services, server: _Server, url: str, choices: list[str]) -> Endpoint:
    chosen = _named(api, services, url, server)
    server.ask(chosen)
    choices.append(f"{chosen.name}, as given")
    return chosen


def _answering(api: Api, services: Services, server: _Server) -> list[Endpoint]:
    """Return the servers that answer, at most one for each Service; raise PlatformError when there is none."""
    ports = server.ports(services)
    made: dict[tuple[str, str], Endpoint] = {}
    for port in ports:
        for prefix in server.prefixes:
            place = port.namespace, port.service
            if place not in made and _answers(server, _endpoint(api, port, server.what, prefix, retry_timeout_s=0.0)):
                made[place] = _endpoint(api, port, server.what, prefix)
    if not made:
        raise PlatformError(
            f"no {server.what} that answers was found among the cluster's {len(services)} Services "
            f"({tried(ports, server.looked_for)}); install one with --install-telemetry, or name yours with "
            f"{server.option}"
        )
    return list(made.values())


def _answers(server: _Server, endpoint: Endpoint) -> bool:
    try:
        server.ask(endpoint)
    except PlatformError:
        return False
    return True


def _receiver(api: Api, services: Services, jaeger: Endpoint, choices: list[str]) -> str:
    """Return where pods send spans: Jaeger itself, its collector, else an OpenTelemetry collector beside it."""
    ports = receiver_ports(services, getattr(jaeger, "namespace", None))
    for port in ports:
        if _listens(api, port):
            url = f"http://{port.service}.{port.namespace}:{port.port}"
            choices.append(f"pods send spans to {url}")
            return url
    raise PlatformError(
        "no receiver of spans over OTLP/HTTP was found "
        f"({tried(ports, 'port 4318 of jaeger, jaeger-collector, otel-collector')}); let Jaeger's collector have port "
        "4318, or install one with --install-telemetry"
    )


def _endpoint(api: Api, port: Port, what: str, prefix: str, retry_timeout_s: float | None = None) -> ProxiedEndpoint:
    return ProxiedEndpoint(
        api,
        what=what,
        namespace=port.namespace,
        service=port.service,
        port=port.port,
        prefix=prefix,
        scheme=port.scheme,
        retry_timeout_s=retry_timeout_s,
    )


def _named(api: Api, services: Services, url: str, server: _Server) -> Endpoint:
    what = server.what
    if "://" in url:
        return UrlEndpoint(url, what=what, token_variable=server.token_variable)
    found = _IN_CLUSTER.fullmatch(url)
    if found is None:
        raise UsageError(f'{what} is named by an URL or by NAMESPACE/SERVICE:PORT, not by "{url}"')
    port: int | str | None = found["port"]
    for service in services:
        place = service["metadata"]["namespace"], service["metadata"]["name"]
        if port is None and place == (found["namespace"], found["service"]):
            port = service["spec"]["ports"][0]["port"]
    if port is None:
        raise PlatformError(f"{what} was to be service {url}, which does not exist; look at kubectl get services -A")
    return ProxiedEndpoint(
        api,
        what=what,
        namespace=found["namespace"],
        service=found["service"],
        port=port,
        prefix=found["prefix"] or "",
    )


def _has_containers(endpoint: Endpoint) -> bool:
    try:
        found = endpoint.get("/api/v1/query", {"query": "count(container_cpu_usage_seconds_total)"})
        return bool(found["data"]["result"])
    except (PlatformError, KeyError, TypeError):
        return False


def _listens(api: Api, port: Port) -> bool:
    """Say whether something behind the port speaks HTTP; a receiver refuses a GET, but it answers."""
    path = f"/api/v1/namespaces/{port.namespace}/services/{port.service}:{port.port}/proxy/v1/traces"
    try:
        api.call("GET", path, retry_timeout_s=0.0, timeout_s=5.0)
    except UnexpectedStatus as error:
        return error.status in (400, 405, 415)
    except PlatformError:
        return False
    return True


def _others(answering: Sequence[Endpoint], chosen: Endpoint) -> str:
    others = [one.name.partition(" at ")[2] for one in answering if one is not chosen]
    return f"; also found: {', '.join(others)}" if others else ""
