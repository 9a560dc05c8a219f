"""The stack for clusters without telemetry: installed, found, asked, and removed without a trace."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
import yaml

from faultset.collector.platforms.kubernetes.client import Api
from faultset.collector.platforms.kubernetes.telemetry.discovery import discover
from faultset.collector.platforms.kubernetes.telemetry.jaeger import JaegerSource
from faultset.collector.platforms.kubernetes.telemetry.prometheus import PrometheusSource
from faultset.collector.platforms.kubernetes.telemetry.stack_objects import (
    COMPONENTS,
    NAMESPACE,
    StackImages,
    install_telemetry,
    remove_telemetry,
    stack_objects,
)
from faultset.core.errors import PlatformError

_INVENTORY = (
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)
_PROGRAMS = {part: ["/bin/" + part] for part in COMPONENTS}


def test_everything_carries_our_labels_and_stays_in_the_namespace() -> None:
    objects = stack_objects("tele", StackImages())
    assert objects[0]["kind"] == "Namespace"
    roles = {one["metadata"]["name"] for one in objects if one["kind"] == "ClusterRole"}
    for found in objects:
        labels = found["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "faultset"
        assert labels["faultset.dev/telemetry"] == "tele"
        if found["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding"):
            assert found["metadata"]["namespace"] == "tele"
        if found["kind"] == "ClusterRoleBinding":
            assert found["subjects"][0]["namespace"] == "tele"
            assert found["roleRef"]["name"] in roles


def test_two_stacks_have_no_name_in_common() -> None:
    first, second = (
        {
            (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"])
            for one in stack_objects(where, StackImages())
        }
        for where in (NAMESPACE, "tele")
    )
    assert first.isdisjoint(second)


def test_the_scrape_configuration_reads_containers_pods_and_objects_every_five_seconds() -> None:
    objects = stack_objects(NAMESPACE, StackImages())
    [config] = [one["data"]["prometheus.yml"] for one in objects if one["kind"] == "ConfigMap"]
    parsed = yaml.safe_load(config)
    assert parsed["global"]["scrape_interval"] == "5s"
    assert [job["job_name"] for job in parsed["scrape_configs"]] == ["cadvisor", "kube-state-metrics", "pods"]
    assert parsed["scrape_configs"][1]["honor_labels"] is True


def test_images_of_the_users_replace_the_public_ones() -> None:
    images = StackImages(images={"jaeger": "mirror/jaeger:1"}, commands={"jaeger": ["/bin/jaeger"]})
    for found in stack_objects(NAMESPACE, images):
        if found["kind"] == "Deployment":
            container = found["spec"]["template"]["spec"]["containers"][0]
            is_jaeger = found["metadata"]["name"] == "jaeger"
            assert (container["image"] == "mirror/jaeger:1") is is_jaeger
            assert ("command" in container) is is_jaeger


def test_a_namespace_of_somebody_else_is_left_alone(connect) -> None:
    asked: list[str] = []

    def server(method: str, path: str, params: Any, body: bytes) -> Any:
        asked.append(method)
        return {"metadata": {"name": NAMESPACE, "labels": {}}, "items": []}

    api = connect(server)
    with pytest.raises(PlatformError, match="exists but was not created by faultset"):
        install_telemetry(api)
    with pytest.raises(PlatformError, match="was not created by faultset and is not removed"):
        remove_telemetry(api)
    assert set(asked) == {"GET"}


def _inventory(api: Api) -> set[tuple[str, str]]:
    return {(path, item["metadata"]["name"]) for path in _INVENTORY for item in api.get(path)["items"]}


@pytest.fixture
def stack(api: Api) -> Iterator[str]:
    """Install the stack with the image that the cluster's own servers run, in a namespace of its own."""
    namespace = f"k1-{secrets.token_hex(4)}"
    deployed = api.get("/apis/apps/v1/deployments")["items"]
    image = next(
        (
            one["spec"]["template"]["spec"]["containers"][0]["image"]
            for one in deployed
            if one["metadata"]["name"] == "prometheus-server" and "testcluster" in str(one["spec"])
        ),
        None,
    )
    images = StackImages(images=dict.fromkeys(COMPONENTS, image), commands=_PROGRAMS) if image else StackImages()
    try:
        install_telemetry(api, namespace=namespace, images=images, timeout_s=120)
        yield namespace
    finally:
        remove_telemetry(api, namespace=namespace)


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, "no samples arrive"
        time.sleep(1.0)


def _has_states(source: PrometheusSource, api: Api, namespace: str) -> bool:
    pods = [item["metadata"]["name"] for item in api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]]
    return all(source.recent("kube_pod_container_status_ready", pod, 20.0).num_rows for pod in pods)


@pytest.mark.cluster
@pytest.mark.slow
def test_the_stack_measures_itself_and_goes_without_a_trace(api: Api, stack: str) -> None:
    found = discover(api, prometheus_url=f"{stack}/prometheus:9090", jaeger_url=f"{stack}/jaeger:16686")
    assert found.otlp_http == f"http://jaeger.{stack}:4318"
    source = PrometheusSource(
        found.prometheus,
        stack,
        service_of_pod=lambda pod: pod.rsplit("-", 2)[0],
        service_of_object=lambda kind, name: name if kind == "Deployment" else None,
        pods_seen=list,
    )
    assert source.interval_s == 5.0
    assert abs(source.clock_offset_s()) < 5.0
    _wait(lambda: _has_states(source, api, stack))
    end_ns = time.time_ns()
    rows = pa.Table.from_batches(source.snapshot(end_ns - 30 * 10**9, end_ns))
    metrics = set(rows["metric"].unique().to_pylist())
    assert {"container_cpu_usage_seconds_total", "kube_pod_status_phase", "kube_deployment_spec_replicas"} <= metrics
    assert set(rows["service"].unique().to_pylist()) >= set(COMPONENTS)
    times = rows["time"].cast(pa.int64()).to_pylist()
    assert end_ns - 30 * 10**9 <= min(times) <= max(times) < end_ns
    frame = rows.to_pandas()
    pod = frame[frame["metric"] == "container_cpu_usage_seconds_total"]["pod"].iloc[0]
    recent = source.recent("container_cpu_usage_seconds_total", pod, 30.0)["value"].to_pylist()
    assert len(recent) >= 2
    assert recent == sorted(recent)
    spans = JaegerSource(
        found.jaeger, stack, COMPONENTS, service_of_pod=lambda pod: None, service_of_reported=lambda name: None
    )
    assert list(spans.snapshot(end_ns - 10**9, end_ns)) == []
    before = _inventory(api)
    removed = remove_telemetry(api, namespace=stack)
    gone = before - _inventory(api)
    assert f"Namespace {stack}" in removed
    names = {f"{stack}-prometheus", f"{stack}-kube-state-metrics"}
    assert gone == {(path, name) for path in _INVENTORY for name in names}
    assert {"default", "kube-system"} <= {item["metadata"]["name"] for item in api.get("/api/v1/namespaces")["items"]}
