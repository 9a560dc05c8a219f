"""Samples of a real Prometheus on a real cluster, of pods that live and of one that died."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from faultset.collector.platforms.kubernetes.api.client import Api, NotFound
from faultset.collector.platforms.kubernetes.telemetry.discovery import find_prometheus
from faultset.collector.platforms.kubernetes.telemetry.prometheus.source import PrometheusSource

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


def test_a_pod_that_died_is_in_the_rows_and_its_series_end(api: Api, namespace: str) -> None:
    pods = api.get("/api/v1/pods", {"labelSelector": "app=prometheus"})["items"]
    image = pods[0]["spec"]["containers"][0]["image"] if pods else "busybox:1.36"
    pods_path = f"/api/v1/namespaces/{namespace}/pods"
    for attempt in range(20):
        try:
            api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            break
        except NotFound:
            time.sleep(0.5 + 0.01 * attempt)
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
    assert source.gaps == ()
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
