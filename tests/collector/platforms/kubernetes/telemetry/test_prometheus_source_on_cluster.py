"""Samples of a real Prometheus on a real cluster, of pods that live and of one that died."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.platforms.kubernetes.client import Api, NotFound
from faultset.collector.platforms.kubernetes.objects import Objects
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.endpoints import ProxiedEndpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus import PrometheusSource, SampleReader

pytestmark = pytest.mark.cluster
CPU = "container_cpu_usage_seconds_total"


def _pod(name: str, image: str) -> dict[str, Any]:
    busy: dict[str, Any] = {"name": "busy", "image": image, "imagePullPolicy": "IfNotPresent"}
    busy["command"] = ["/bin/sh", "-c", "while true; do :; done & sleep 600"]
    busy["resources"] = {"limits": {"cpu": "50m", "memory": "32Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [busy]},
    }


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """Make a namespace, and remove it at the end."""
    name = f"k1-{secrets.token_hex(4)}"
    api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api.call("DELETE", f"/api/v1/namespaces/{name}")


def _await_account(api: Api, namespace: str) -> None:
    for attempt in range(20):
        try:
            api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            return
        except NotFound:
            time.sleep(0.5 + 0.01 * attempt)


def _tools_image(api: Api) -> str:
    pods = api.get("/api/v1/pods", {"labelSelector": "app=prometheus"})["items"]
    return pods[0]["spec"]["containers"][0]["image"] if pods else "prom/prometheus:v3.9.1"


def _prometheus_of_itself(api: Api, namespace: str, image: str) -> ProxiedEndpoint:
    """Start a Prometheus that scrapes the native histograms of its own pod; return where it answers."""
    labels = {"namespace": namespace, "pod": "prometheus-aa-own"}
    config = {
        "global": {"scrape_interval": "1s", "scrape_native_histograms": True},
        "scrape_configs": [{"job_name": "own", "static_configs": [{"targets": ["127.0.0.1:9090"], "labels": labels}]}],
    }
    container: dict[str, Any] = {"name": "prometheus", "image": image, "imagePullPolicy": "IfNotPresent"}
    container["command"] = ["/bin/prometheus", "--config.file=/config/prometheus.yml", "--storage.tsdb.path=/data"]
    container["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in ("config", "data")]
    volumes = [{"name": "config", "configMap": {"name": "own"}}, {"name": "data", "emptyDir": {}}]
    objects = Objects(api, namespace)
    objects.create({"kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"prometheus.yml": json.dumps(config)}})
    pod_spec = {"terminationGracePeriodSeconds": 0, "containers": [container], "volumes": volumes}
    metadata = {"name": labels["pod"], "labels": {"app": "own"}}
    objects.create({"kind": "Pod", "metadata": metadata, "spec": pod_spec})
    service_spec = {"selector": {"app": "own"}, "ports": [{"port": 9090}]}
    objects.create({"kind": "Service", "metadata": {"name": "own"}, "spec": service_spec})
    return ProxiedEndpoint(api, kind="Prometheus", namespace=namespace, service="own", port=9090, retry_timeout_s=90.0)


def test_native_histograms_of_a_real_server_become_the_rows_that_it_would_compute(api: Api, namespace: str) -> None:
    _await_account(api, namespace)
    endpoint = _prometheus_of_itself(api, namespace, _tools_image(api))
    reader, family = SampleReader(endpoint), "prometheus_http_request_duration_seconds"
    handler = f'{family}{{handler="/api/v1/query"}}'
    deadline = time.monotonic() + 90
    histograms: object = None
    while not histograms:
        assert time.monotonic() < deadline, "no native histogram arrives"
        time.sleep(0.2)
        with contextlib.suppress(NotFound):  # the API server's proxy learns of a new Service a moment later
            histograms = reader.instant(f"histogram_count({handler}) > 20")
    source = PrometheusSource(
        endpoint,
        namespace,
        service_of_pod=lambda pod: pod.partition("-")[0],
        service_of_object=lambda kind, name: None,
        pods_seen=lambda: ["prometheus-aa-own"],
    )
    end_ns = time.time_ns()
    rows = pa.Table.from_batches(source.snapshot(end_ns - 30 * 10**9, end_ns)).to_pandas()
    assert source.notes == ()
    rows = rows[rows["metric"].str.startswith(family) & rows["labels"].str.contains('"/api/v1/query"')]
    last = rows[rows["time"] == rows["time"].max()]
    at = f"@ {last['time'].astype('int64').iloc[0] / 1e9:.3f}"
    (count,) = last.loc[last["metric"] == f"{family}_count", "value"]
    (total,) = last.loc[last["metric"] == f"{family}_sum", "value"]
    assert count == reader.instant(f"histogram_count({handler} {at})")[0][1] > 20
    assert total == reader.instant(f"histogram_sum({handler} {at})")[0][1] > 0
    buckets = {json.loads(row.labels)["le"]: row.value for row in last[last["kind"] == "bucket"].itertuples()}
    assert len(buckets) > 3
    assert buckets["+Inf"] == count
    for bound, value in buckets.items():
        computed = reader.instant(f"histogram_fraction(-Inf, {bound}, {handler} {at}) * {count}")[0][1]
        assert value == pytest.approx(computed), bound


def test_a_pod_that_died_is_in_the_rows_and_its_series_end(api: Api, namespace: str) -> None:
    pods = api.get("/api/v1/pods", {"labelSelector": "app=prometheus"})["items"]
    image = pods[0]["spec"]["containers"][0]["image"] if pods else "busybox:1.36"
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    _await_account(api, namespace)
    for name in ("busy-aa-live", "busy-aa-dead"):
        api.post(pods_path, _pod(name, image))
    endpoint, _ = find_prometheus(api)
    source = PrometheusSource(
        endpoint,
        namespace,
        service_of_pod=lambda pod: pod.partition("-")[0],
        service_of_object=lambda kind, name: None,
        pods_seen=lambda: ["busy-aa-live", "busy-aa-dead"],
    )
    start_ns, deadline = time.time_ns(), time.monotonic() + 90
    while any(source.recent(CPU, pod, 30.0).num_rows < 2 for pod in ("busy-aa-live", "busy-aa-dead")):
        assert time.monotonic() < deadline, "no samples arrive"
        time.sleep(1.0)
    api.call("DELETE", f"{pods_path}/busy-aa-dead")
    died_ns = time.time_ns()
    while source.recent(CPU, "busy-aa-live", 15.0)["time"].cast(pa.int64()).to_pylist()[-1] < died_ns + 12 * 10**9:
        assert time.monotonic() < deadline + 60
        time.sleep(1.0)
    end_ns = died_ns + 12 * 10**9
    rows = pa.Table.from_batches(source.snapshot(start_ns, end_ns))
    assert source.notes == ()
    frame = rows.to_pandas()
    frame["time"] = frame["time"].astype("int64")
    cpu = frame[frame["metric"] == CPU]
    last = cpu.groupby("pod", observed=True)["time"].max()
    assert last["busy-aa-dead"] < last["busy-aa-live"]
    values = cpu[cpu["pod"] == "busy-aa-live"]["value"]
    assert values.is_monotonic_increasing
    assert values.iloc[-1] > values.iloc[0]
    assert set(cpu["service"]) == {"busy"}
    assert set(cpu["kind"]) == {"counter"}
    phases = frame[frame["metric"] == "kube_pod_status_phase"]
    assert set(phases["pod"]) == {"busy-aa-live", "busy-aa-dead"}
