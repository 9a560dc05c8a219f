"""The servers of the usual installations are found, asked, and named; what is missing is said with a way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faultset.collector.platforms.kubernetes.telemetry.discovery import discover
from faultset.core.errors import PlatformError, UsageError

CPU = "container_cpu_usage_seconds_total"


@pytest.fixture
def installed(api_server, prometheus, jaeger) -> Callable[..., Any]:
    """Put servers behind Services of an API server."""

    def listening(method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
        return {"partialSuccess": {}}

    def put(prometheus_at: str = "", jaeger_at: str = "", otlp_at: str = "", prefix: str = "", **labels: str) -> Any:
        def behind_prefix(method: str, path: str, params: dict[str, list[str]], body: bytes) -> Any:
            return jaeger(method, path.removeprefix(prefix), params, body) if path.startswith(prefix) else None

        if prometheus_at:
            api_server.add_service(prometheus_at, prometheus, **labels)
        if jaeger_at:
            api_server.add_service(jaeger_at, behind_prefix)
        if otlp_at:
            api_server.add_service(otlp_at, listening)
        return api_server

    return put


@pytest.mark.parametrize(
    "place",
    [
        "observe/prometheus-server:80",
        "monitoring/prometheus-operated:9090",
        "monitoring/kps-kube-prometheus-stack-prometheus:9090",
        "monitoring/prometheus-k8s:9090",
        "default/prometheus:9090",
    ],
)
def test_the_usual_prometheus_is_found(installed, connect, place) -> None:
    found = discover(connect(installed(place, "observe/jaeger:16686", "observe/jaeger:4318")))
    assert found.prometheus.name == f"Prometheus at service {place}"
    assert found.prometheus.get("/api/v1/query", {"query": "vector(1)"})["status"] == "success"


@pytest.mark.parametrize(
    ("place", "otlp", "prefix"),
    [
        ("observe/jaeger:16686", "observe/jaeger:4318", ""),
        ("tracing/jaeger-query:16686", "tracing/jaeger-collector:4318", ""),
        ("tracing/simplest-query:16686", "tracing/simplest-collector-jaeger:4318", ""),
        ("astronomy-shop/jaeger-query:16686", "astronomy-shop/otel-collector:4318", "/jaeger/ui"),
    ],
    ids=["all-in-one", "chart", "operator", "demo"],
)
def test_the_usual_jaeger_is_found_with_what_receives_its_spans(installed, connect, place, otlp, prefix) -> None:
    found = discover(connect(installed("observe/prometheus-server:80", place, otlp, prefix)))
    assert found.jaeger.name == f"Jaeger at service {place}{prefix}"
    namespace, _, name = otlp.partition("/")
    assert found.otlp_http == f"http://{name.partition(':')[0]}.{namespace}:4318"
    assert found.jaeger.get("/api/services")["data"] is None


def test_the_prometheus_with_container_metrics_is_preferred_and_the_others_are_named(
    serve, api_server, connect, prometheus, installed
) -> None:
    other = type(prometheus)()
    other.add(CPU, [(1.0, 1)], namespace="kube-system")
    api_server.add_service("a/prometheus-server:80", prometheus)
    api_server.add_service("b/prometheus-k8s:9090", other)
    found = discover(connect(installed("", "observe/jaeger:16686", "observe/jaeger:4318")))
    assert found.prometheus.name == "Prometheus at service b/prometheus-k8s:9090"
    assert "also found: service a/prometheus-server:80" in found.choices[0]


def test_our_own_stack_comes_first(api_server, connect, prometheus, installed) -> None:
    prometheus.add(CPU, [(1.0, 1)], namespace="kube-system")
    api_server.add_service("a/prometheus-server:80", prometheus)
    labels = {"faultset.dev/telemetry": "faultset-telemetry"}
    api_server.add_service("faultset-telemetry/prometheus:9090", prometheus, **labels)
    api_server.add_service("aa-test/prometheus:9090", prometheus, **{"faultset.dev/telemetry": "aa-test"})
    found = discover(connect(installed("", "observe/jaeger:16686", "observe/jaeger:4318")))
    assert found.prometheus.name == "Prometheus at service faultset-telemetry/prometheus:9090"


@pytest.mark.parametrize(
    "name", ["prometheus-node-exporter", "prometheus-alertmanager", "prometheus-pushgateway", "prometheus-operator"]
)
def test_relatives_of_prometheus_are_not_taken_for_it(installed, connect, name) -> None:
    with pytest.raises(PlatformError, match=r"no responding Prometheus .*searched for prometheus-server"):
        discover(connect(installed(f"monitoring/{name}:9090")))


def test_a_cluster_without_prometheus_is_told_what_to_do(installed, connect) -> None:
    with pytest.raises(PlatformError, match="--install-telemetry, or set --prometheus-url"):
        discover(connect(installed("", "observe/jaeger:16686")))


def test_a_service_without_pods_does_not_count(api_server, connect) -> None:
    api_server.add_service("observe/prometheus-server:80")
    with pytest.raises(PlatformError, match="observe/prometheus-server:80 did not respond"):
        discover(connect(api_server))


def test_a_cluster_without_jaeger_is_told_what_to_do(installed, connect) -> None:
    with pytest.raises(PlatformError, match=r"no responding Jaeger .*or set --jaeger-url"):
        discover(connect(installed("observe/prometheus-server:80")))


def test_a_jaeger_that_takes_no_spans_by_http_is_told_so(installed, connect) -> None:
    with pytest.raises(PlatformError, match="no receiver of spans over OTLP/HTTP"):
        discover(connect(installed("observe/prometheus-server:80", "observe/jaeger:16686")))


def test_a_receiver_that_refuses_to_be_read_is_a_receiver(installed, connect, api_server, refused) -> None:
    def receiver(*asked: Any) -> Any:
        raise refused(405, b"405 method not allowed, supported: [POST]")

    installed("observe/prometheus-server:80", "observe/jaeger:16686")
    api_server.add_service("observe/jaeger-collector:4318", receiver)
    assert discover(connect(api_server)).otlp_http == "http://jaeger-collector.observe:4318"


def test_the_users_addresses_are_used_and_asked(serve, installed, connect, prometheus, jaeger) -> None:
    mine, traces = serve(prometheus), serve(jaeger)
    api = connect(installed("observe/prometheus-server:80", "", "observe/otel-collector:4318"))
    found = discover(api, prometheus_url=mine.url, jaeger_url=traces.url)
    assert found.prometheus.name == f"Prometheus at {mine.url}"
    assert found.otlp_http == "http://otel-collector.observe:4318"
    assert [path for path, _ in traces.requests] == ["/api/services"]


def test_a_service_of_the_cluster_may_be_named(installed, connect) -> None:
    api = connect(installed("observe/metrics-store:8480", "x/traces:16686", "x/otel-collector:4318", "/ui"))
    found = discover(api, prometheus_url="observe/metrics-store", jaeger_url="x/traces:16686/ui")
    assert found.prometheus.name == "Prometheus at service observe/metrics-store:8480"
    assert found.jaeger.name == "Jaeger at service x/traces:16686/ui"


def test_an_address_that_is_none_is_a_usage_error(installed, connect) -> None:
    with pytest.raises(UsageError, match="the address of Prometheus must be a URL or NAMESPACE/SERVICE:PORT"):
        discover(connect(installed()), prometheus_url="here!")


def test_another_server_at_the_users_address_is_not_taken_for_prometheus(serve, installed, connect, jaeger) -> None:
    with pytest.raises(PlatformError, match="with status 404"):
        discover(connect(installed()), prometheus_url=serve(jaeger).url)


def test_a_user_who_may_not_list_services_is_told_so(api_server, connect) -> None:
    api_server.refused = {("services", "list")}
    with pytest.raises(PlatformError, match="the cluster forbids a required operation"):
        discover(connect(api_server))
