"""Which Prometheus and which Jaeger of the cluster are asked, found by the names of the usual installations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.collector.platforms.kubernetes.access import Api
from faultset.collector.platforms.kubernetes.endpoints import Endpoint, ProxiedEndpoint, UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry_stack import NAMESPACE, PART
from faultset.datasets.errors import PlatformError, UsageError

PROMETHEUS_TOKEN = "FAULTSET_PROMETHEUS_TOKEN"
JAEGER_TOKEN = "FAULTSET_JAEGER_TOKEN"

_PROMETHEUS = re.compile(r"(^|-)prometheus(-server|-operated|-k8s|-prometheus)?$")
_NO_PROMETHEUS = re.compile(r"exporter|alertmanager|pushgateway|operator|adapter|blackbox|kube-state|thanos|grafana")
_JAEGER = re.compile(r"jaeger|(^|-)simplest-query$")
_NO_JAEGER = re.compile(r"agent|operator|cassandra|elasticsearch|headless")
_RECEIVER = re.compile(r"jaeger|otel-?col|opentelemetry-collector|otel-agent|tempo|alloy")

_PROMETHEUS_PORTS = frozenset({80, 9090, 443})
_PROMETHEUS_PORT_NAMES = frozenset({"web", "http", "http-web", "https", "prometheus"})
_QUERY_PORTS = frozenset({16686})
_QUERY_PORT_NAMES = frozenset({"query", "http-query", "jaeger-query", "query-http", "jaeger-ui", "ui"})
_OTLP_PORTS = frozenset({4318})
_OTLP_PORT_NAMES = frozenset({"otlp-http", "otlphttp", "http-otlp"})

_PROMETHEUS_PREFIXES = ("", "/prometheus")
_JAEGER_PREFIXES = ("", "/jaeger/ui", "/jaeger")

_IN_CLUSTER = re.compile(r"(?P<namespace>[a-z0-9-]+)/(?P<service>[a-z0-9-]+)(:(?P<port>[a-z0-9-]+))?(?P<prefix>/.*)?")


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """The servers that an episode's telemetry is read from.

    Attributes
    ----------
    otlp_http
        Where pods send their spans, as they see it: http://jaeger.observe:4318.
    said
        Sentences on what was chosen and why.
    """

    prometheus: Endpoint
    jaeger: Endpoint
    otlp_http: str
    said: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Port:
    """One port of one Service that may be what is looked for."""

    namespace: str
    service: str
    port: int
    name: str
    place_rank: int

    @property
    def scheme(self) -> str:
        return "https" if self.name.startswith("https") or self.port == 443 else "http"

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.service}:{self.port}"


def discover(
    api: Api,
    *,
    prometheus_url: str | None = None,
    jaeger_url: str | None = None,
    otlp_url: str | None = None,
) -> Telemetry:
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
    said: list[str] = []
    prometheus = _prometheus(api, services, prometheus_url, said)
    jaeger = _jaeger(api, services, jaeger_url, said)
    return Telemetry(
        prometheus=prometheus,
        jaeger=jaeger,
        otlp_http=otlp_url.rstrip("/") if otlp_url else _receiver(api, services, jaeger, said),
        said=tuple(said),
    )


def find_prometheus(api: Api, url: str | None = None) -> tuple[Endpoint, str]:
    """Return a Prometheus that answers and why it was chosen; raise PlatformError."""
    said: list[str] = []
    return _prometheus(api, _services(api), url, said), said[0]


def find_jaeger(api: Api, url: str | None = None) -> tuple[Endpoint, str, str]:
    """Return a Jaeger that answers, where pods send spans, and why both were chosen; raise PlatformError."""
    said: list[str] = []
    services = _services(api)
    jaeger = _jaeger(api, services, url, said)
    return jaeger, _receiver(api, services, jaeger, said), "; ".join(said)


def _services(api: Api) -> list[dict[str, Any]]:
    return api.get("/api/v1/services")["items"]


def _prometheus(api: Api, services: Sequence[Mapping[str, Any]], url: str | None, said: list[str]) -> Endpoint:
    what = "Prometheus"
    if url is not None:
        chosen = _named(api, services, url, what, PROMETHEUS_TOKEN)
        _ask_prometheus(chosen)
        said.append(f"{chosen.name}, as told")
        return chosen
    ports = [
        port
        for port in _ports(services, _is_prometheus)
        if port.port in _PROMETHEUS_PORTS or port.name in _PROMETHEUS_PORT_NAMES
    ]
    answering = list(_answering(api, ports, what, _PROMETHEUS_PREFIXES, _ask_prometheus))
    if not answering:
        raise PlatformError(
            f"no Prometheus that answers was found among the cluster's {len(services)} Services "
            f"({_tried(ports, 'prometheus-server, prometheus-operated, *-prometheus, prometheus-k8s')}); install one "
            "with --install-telemetry, or name yours with --prometheus-url"
        )
    with_containers = [one for one in answering if _has_containers(one)]
    chosen = (with_containers or answering)[0]
    why = "it has container metrics" if with_containers else "it answers, but it has no container metrics"
    said.append(f"{chosen.name}: {why}{_others(answering, chosen)}")
    return chosen


def _jaeger(api: Api, services: Sequence[Mapping[str, Any]], url: str | None, said: list[str]) -> Endpoint:
    what = "Jaeger"
    if url is not None:
        chosen = _named(api, services, url, what, JAEGER_TOKEN)
        _ask_jaeger(chosen)
        said.append(f"{chosen.name}, as told")
        return chosen
    ports = [
        port
        for port in _ports(services, _is_jaeger)
        if port.port in _QUERY_PORTS or port.name in _QUERY_PORT_NAMES or (port.port == 80 and "query" in port.service)
    ]
    answering = list(_answering(api, ports, what, _JAEGER_PREFIXES, _ask_jaeger))
    if not answering:
        raise PlatformError(
            f"no Jaeger that answers was found among the cluster's {len(services)} Services "
            f"({_tried(ports, 'jaeger, jaeger-query, *-query with port 16686')}); install one with "
            "--install-telemetry, or name yours with --jaeger-url"
        )
    chosen = answering[0]
    said.append(f"{chosen.name}: it answers{_others(answering, chosen)}")
    return chosen


def _receiver(api: Api, services: Sequence[Mapping[str, Any]], jaeger: Endpoint, said: list[str]) -> str:
    """Return where pods send spans: Jaeger itself, its collector, else an OpenTelemetry collector beside it."""
    home = getattr(jaeger, "namespace", None)
    ports = [
        port
        for port in _ports(services, lambda service: _RECEIVER.search(service["metadata"]["name"]) is not None)
        if port.port in _OTLP_PORTS or port.name in _OTLP_PORT_NAMES
    ]
    ports.sort(key=lambda port: (port.namespace != home, port.place_rank, "jaeger" not in port.service, port.place))
    tried = []
    for port in ports:
        if home is not None and port.namespace != home and "jaeger" in port.service:
            continue
        if _listens(api, port):
            url = f"http://{port.service}.{port.namespace}:{port.port}"
            said.append(f"pods send spans to {url}")
            return url
        tried.append(port)
    raise PlatformError(
        "no receiver of spans over OTLP/HTTP was found "
        f"({_tried(tried, 'port 4318 of jaeger, jaeger-collector, otel-collector')}); let Jaeger's collector have port "
        "4318, or install one with --install-telemetry"
    )


def _ports(services: Sequence[Mapping[str, Any]], wanted: Callable[[Mapping[str, Any]], bool]) -> list[_Port]:
    made = [
        _Port(
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


def _answering(
    api: Api, ports: Sequence[_Port], what: str, prefixes: Sequence[str], ask: Callable[[Endpoint], None]
) -> Iterator[Endpoint]:
    seen = set()
    for port in ports:
        for prefix in prefixes:
            if (port.namespace, port.service) in seen:
                break
            found = _endpoint(api, port, what, prefix, patience_s=0.0)
            try:
                ask(found)
            except PlatformError:
                continue
            seen.add((port.namespace, port.service))
            yield _endpoint(api, port, what, prefix)


def _endpoint(api: Api, port: _Port, what: str, prefix: str, patience_s: float | None = None) -> ProxiedEndpoint:
    return ProxiedEndpoint(
        api,
        what=what,
        namespace=port.namespace,
        service=port.service,
        port=port.port,
        prefix=prefix,
        scheme=port.scheme,
        patience_s=patience_s,
    )


def _named(api: Api, services: Sequence[Mapping[str, Any]], url: str, what: str, variable: str) -> Endpoint:
    if "://" in url:
        return UrlEndpoint(url, what=what, token_variable=variable)
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


def _ask_prometheus(endpoint: Endpoint) -> None:
    answer = endpoint.get("/api/v1/query", {"query": "vector(1)"})
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        raise PlatformError(f"{endpoint.name} does not answer as Prometheus does; correct its address")


def _ask_jaeger(endpoint: Endpoint) -> None:
    answer = endpoint.get("/api/services")
    if not isinstance(answer, Mapping) or "data" not in answer:
        raise PlatformError(f"{endpoint.name} does not answer as Jaeger does; correct its address")


def _has_containers(endpoint: Endpoint) -> bool:
    try:
        found = endpoint.get("/api/v1/query", {"query": "count(container_cpu_usage_seconds_total)"})
        return bool(found["data"]["result"])
    except (PlatformError, KeyError, TypeError):
        return False


def _listens(api: Api, port: _Port) -> bool:
    """Say whether something behind the port speaks HTTP; a receiver refuses a GET, but it answers."""
    path = f"/api/v1/namespaces/{port.namespace}/services/{port.service}:{port.port}/proxy/v1/traces"
    try:
        api.call("GET", path, patience_s=0.0, timeout_s=5.0)
    except PlatformError as error:
        return any(f"answered {status}" in str(error) for status in (400, 404, 405, 415))
    return True


def _tried(ports: Sequence[_Port], looked_for: str) -> str:
    if not ports:
        return f"looked for {looked_for}"
    places = sorted({port.place for port in ports})
    return f"{', '.join(places[:3])}{' and more' if len(places) > 3 else ''} did not answer"


def _others(answering: Sequence[Endpoint], chosen: Endpoint) -> str:
    others = [one.name.partition(" at ")[2] for one in answering if one is not chosen]
    return f"; also found: {', '.join(others)}" if others else ""
