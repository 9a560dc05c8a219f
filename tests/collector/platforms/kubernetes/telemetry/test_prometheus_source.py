"""Series of a cluster become the rows that the embedded platform would have stored."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from faultset.collector.platforms.kubernetes.telemetry.endpoints import UrlEndpoint
from faultset.collector.platforms.kubernetes.telemetry.prometheus import PrometheusSource
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import METRICS

T0 = 1_700_000_000
SECOND = 1_000_000_000
POD = "geo-6d9c8b7f4-x2k4f"
DEAD = "geo-6d9c8b7f4-aaaaa"
CPU = "container_cpu_usage_seconds_total"
NAMES = ["service", "pod", "container", "metric", "labels", "kind"]


@pytest.fixture
def source(serve, prometheus) -> Callable[..., PrometheusSource]:
    def make(**options: Any) -> PrometheusSource:
        owners = {
            ("Deployment", "geo"): "geo",
            ("Endpoints", "geo"): "geo",
            ("PersistentVolumeClaim", "geo-pvc"): "mongodb-geo",
            ("PersistentVolume", "geo-pv"): "mongodb-geo",
        }
        return PrometheusSource(
            UrlEndpoint(serve(prometheus).url, kind="Prometheus", retry_timeout_s=0.0),
            "shop",
            service_of_pod=lambda pod: pod.rsplit("-", 2)[0] if pod.count("-") == 2 else None,
            service_of_object=lambda kind, name: owners.get((kind, name)),
            pods_seen=lambda: [POD, DEAD],
            **options,
        )

    return make


def _rows(source: PrometheusSource, start_s: float = 0, end_s: float = 600) -> pd.DataFrame:
    batches = list(source.snapshot(round((T0 + start_s) * SECOND), round((T0 + end_s) * SECOND)))
    schema = METRICS.remove(METRICS.get_field_index("episode"))
    frame = pa.Table.from_batches(batches, schema=schema).to_pandas()
    frame["time"] = (frame["time"].astype("int64") - T0 * SECOND) / SECOND
    return frame.astype(dict.fromkeys(NAMES, object)).where(lambda cell: cell.notna(), None)


def _names(rows: pd.DataFrame) -> set[tuple[Any, ...]]:
    return set(rows[NAMES].itertuples(index=False, name=None))


def _cadvisor(prometheus: Any, name: str, values: Sequence[tuple[float, float]], /, *, run: str = "a1", **labels: str):
    defaults = {
        "id": f"/kubepods/burstable/pod1/{run}",
        "name": run,
        "image": "example/hotel:1",
        "container": "hotel-reserv-geo",
        "pod": POD,
        "namespace": "shop",
        "instance": "node-1",
        "job": "kubernetes-cadvisor",
        "kubernetes_io_hostname": "node-1",
    }
    prometheus.add(name, [(T0 + at, value) for at, value in values], **(defaults | labels))


def test_a_container_is_one_series_without_its_pod_and_its_sandbox(source, prometheus) -> None:
    prometheus.metadata = {CPU: "counter"}
    _cadvisor(prometheus, CPU, [(1, 5.0), (6, 5.5)], cpu="total")
    _cadvisor(prometheus, CPU, [(2, 6.0)], run="sandbox", container="", cpu="total", image="pause:3.9")
    _cadvisor(prometheus, CPU, [(2, 6.0)], run="sandbox", container="POD", cpu="total")
    _cadvisor(prometheus, CPU, [(3, 9.0)], run="", container="", cpu="total", id="/kubepods/burstable/pod1")
    rows = _rows(source())
    assert _names(rows) == {("geo", POD, "hotel-reserv-geo", CPU, '{"cpu":"total"}', "counter")}
    assert rows[["time", "value"]].to_numpy().tolist() == [[1.0, 5.0], [6.0, 5.5]]


def test_a_pod_stands_for_its_containers_where_the_runtime_is_not_known(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(3, 9.0)], run="", container="", cpu="total", id="/kubepods/burstable/pod1")
    assert _names(_rows(source())) == {("geo", POD, None, CPU, '{"cpu":"total"}', "counter")}


def test_the_kubelets_summary_is_not_counted_beside_cadvisor(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 5.0)], cpu="total")
    at = {"container": "hotel-reserv-geo", "pod": POD, "namespace": "shop", "instance": "node-1"}
    prometheus.add(CPU, [(T0 + 1.5, 5.1)], **at, job="kubelet-resource")
    assert _rows(source())["value"].tolist() == [5.0]


def test_network_is_of_the_pod_and_of_its_main_interface(source, prometheus) -> None:
    name = "container_network_receive_bytes_total"
    sandbox = {"run": "sandbox", "container": ""}
    _cadvisor(prometheus, name, [(1, 100)], **sandbox, interface="eth0")
    _cadvisor(prometheus, name, [(1, 7)], **sandbox, interface="lo")
    _cadvisor(prometheus, name, [(1, 8)], **sandbox, interface="tunl0")
    _cadvisor(prometheus, name, [(1.5, 101)], run="", container="", id="/kubepods/pod1", interface="eth0")
    rows = _rows(source())
    assert _names(rows) == {("geo", POD, None, name, '{"interface":"eth0"}', "counter")}
    assert rows["value"].tolist() == [100.0]


def test_disks_of_a_container_are_added_up(source, prometheus) -> None:
    name = "container_fs_writes_bytes_total"
    for device, written in (("/dev/sda", 10), ("/dev/sdb", 5)):
        _cadvisor(prometheus, name, [(1, written), (6, 2 * written)], device=device)
    rows = _rows(source())
    assert rows["labels"].tolist() == ["{}", "{}"]
    assert rows["value"].tolist() == [15.0, 30.0]


def test_a_counter_starts_again_with_its_container_and_no_instant_comes_twice(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 50), (6, 51), (11, 52), (16, 52)], cpu="total", run="first")
    _cadvisor(prometheus, CPU, [(13, 0.5), (18, 1.0)], cpu="total", run="second")
    rows = _rows(source())
    assert rows["time"].tolist() == [1, 6, 11, 13, 18]
    assert rows["value"].tolist() == [50, 51, 52, 0.5, 1.0]


def test_two_scrapers_of_one_container_make_one_series(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(at, at) for at in range(1, 60, 5)], cpu="total", job="a")
    _cadvisor(prometheus, CPU, [(at + 2, at + 2) for at in range(1, 60, 5)], cpu="total", job="b")
    rows = _rows(source())
    assert rows["time"].is_unique
    assert rows["value"].is_monotonic_increasing
    assert len(rows) == 13


def test_a_pod_that_died_keeps_its_samples_and_gets_no_more(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 5), (6, 6)], cpu="total", pod=DEAD)
    rows = _rows(source())
    assert rows["pod"].tolist() == [DEAD, DEAD]
    assert rows["service"].tolist() == ["geo", "geo"]
    assert rows["time"].max() == 6


def test_pods_without_a_sample_are_named(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 5)], cpu="total")
    made = source()
    _rows(made)
    assert made.notes == (f"Prometheus has no samples of the pods {DEAD}",)


def test_strangers_rules_and_alerts_are_left_out(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 5)], cpu="total", namespace="other")
    for name in ("namespace:cpu:sum", "ALERTS", "ALERTS_FOR_STATE", "kube_pod_info", "kube_pod_labels"):
        prometheus.add(name, [(T0 + 1, 1)], namespace="shop", pod=POD)
    assert _rows(source()).empty


def _scraped(job: str, **labels: str) -> dict[str, Any]:
    return {
        "labels": {"job": job, "instance": "10.0.0.7:8080", **labels},
        "scrapePool": job,
        "scrapeUrl": "http://10.0.0.7:8080/metrics",
        "scrapeInterval": "15s",
    }


def test_what_a_pod_exports_has_only_the_labels_that_it_gave(source, prometheus) -> None:
    added = {"namespace": "shop", "pod": POD, "app": "geo", "pod_template_hash": "6d9c8b7f4", "node": "node-1"}
    prometheus.targets = [_scraped("kubernetes-pods", **added)]
    prometheus.metadata = {"http_server_request_duration_seconds": "histogram", "process_open_fds": "gauge"}
    own = {"http_route": "/geo", "le": "0.5", "exported_job": "nightly"}
    prometheus.add(
        "http_server_request_duration_seconds_bucket",
        [(T0 + 1, 3)],
        **added,
        **own,
        job="kubernetes-pods",
        instance="10.0.0.7:8080",
    )
    prometheus.add("process_open_fds", [(T0 + 1, 9)], **added, job="kubernetes-pods", instance="gone:1")
    _cadvisor(prometheus, CPU, [(1, 5)], cpu="total")
    rows = _rows(source())
    rows = rows[rows["metric"] != CPU]
    own_labels = '{"http_route":"/geo","job":"nightly","le":"0.5"}'
    assert _names(rows) == {
        ("geo", POD, "hotel-reserv-geo", "http_server_request_duration_seconds_bucket", own_labels, "bucket"),
        ("geo", POD, "hotel-reserv-geo", "process_open_fds", "{}", "gauge"),
    }


def _state(
    prometheus: Any, name: str, values: Sequence[tuple[float, float]], /, *, honoured: bool, **labels: str
) -> None:
    place = {"namespace": "observe", "pod": "ksm-1", "container": "ksm", "service": "ksm", "endpoint": "http"}
    if honoured:
        merged = place | {"namespace": "shop"} | labels
    else:
        own = {"namespace": "shop"} | labels
        merged = {f"exported_{key}" if key in place else key: value for key, value in own.items()} | place
    samples = [(T0 + at, value) for at, value in values]
    prometheus.add(name, samples, **merged, job="ksm", instance="10.0.0.7:8080")


@pytest.mark.parametrize("honoured", [True, False], ids=["labels-honoured", "labels-moved-aside"])
def test_the_state_of_objects_is_the_same_however_labels_are_scraped(source, prometheus, honoured) -> None:
    added = {"namespace": "observe", "pod": "ksm-1", "container": "ksm", "service": "ksm", "endpoint": "http"}
    prometheus.targets = [_scraped("ksm", **added)]
    prometheus.metadata = {"kube_pod_container_status_restarts_total": "counter", "kube_pod_status_phase": "gauge"}
    here = {"pod": POD, "uid": "0b1c"}
    _state(prometheus, "kube_pod_status_phase", [(1, 1)], honoured=honoured, **here, phase="Pending")
    name = "kube_pod_container_status_restarts_total"
    _state(prometheus, name, [(1, 2)], honoured=honoured, **here, container="hotel-reserv-geo")
    _state(prometheus, "kube_deployment_spec_replicas", [(1, 1)], honoured=honoured, deployment="geo")
    _state(
        prometheus, "kube_endpoint_address", [(1, 1)], honoured=honoured, endpoint="geo", ip="10.0.0.9", ready="true"
    )
    assert _names(_rows(source())) == {
        ("geo", POD, None, "kube_pod_status_phase", '{"phase":"Pending"}', "gauge"),
        ("geo", POD, "hotel-reserv-geo", name, "{}", "counter"),
        ("geo", None, None, "kube_deployment_spec_replicas", '{"deployment":"geo"}', "gauge"),
        ("geo", None, None, "kube_endpoint_address", '{"endpoint":"geo","ready":"true"}', "gauge"),
    }


def test_addresses_are_counted_and_none_is_a_number_too(source, prometheus) -> None:
    _state(prometheus, "kube_endpoint_info", [(1, 1), (6, 1), (11, 1)], honoured=True, endpoint="geo")
    for ip, values in (("10.0.0.9", [(1, 1.0), (6, 1.0)]), ("10.0.0.8", [(1, 1.0)])):
        _state(prometheus, "kube_endpoint_address", values, honoured=True, endpoint="geo", ip=ip, ready="true")
    rows = _rows(source())
    found = {labels: part["value"].tolist() for labels, part in rows.groupby("labels")}
    assert found == {'{"endpoint":"geo","ready":"true"}': [2, 1, 0], '{"endpoint":"geo","ready":"false"}': [0, 0, 0]}
    assert set(rows["metric"]) == {"kube_endpoint_address"}


def test_reasons_that_do_not_hold_are_zero_as_on_the_embedded_platform(source, prometheus) -> None:
    base = "kube_pod_container_status_waiting"
    here = {"pod": POD, "container": "hotel-reserv-geo", "uid": "0b1c"}
    _state(prometheus, base, [(1, 0), (6, 1), (11, 0)], honoured=True, **here)
    _state(prometheus, f"{base}_reason", [(6, 1)], honoured=True, **here, reason="CrashLoopBackOff")
    rows = _rows(source())
    rows = rows[rows["metric"] == f"{base}_reason"]
    found = {json.loads(str(labels))["reason"]: part["value"].tolist() for labels, part in rows.groupby("labels")}
    assert found["CrashLoopBackOff"] == [0, 1, 0]
    assert found["ImagePullBackOff"] == [0, 0, 0]
    assert len(found) == 6


def test_only_the_volumes_of_the_application_are_kept_under_their_plain_names(source, prometheus) -> None:
    name = "kube_persistentvolume_status_phase"
    for volume in ("shop-geo-pv", "other-geo-pv"):
        prometheus.add(name, [(T0 + 1, 1)], persistentvolume=volume, phase="Bound", job="ksm", instance="i")
    name_of_claim = "kube_persistentvolumeclaim_status_phase"
    _state(prometheus, name_of_claim, [(1, 1)], honoured=True, persistentvolumeclaim="geo-pvc", phase="Bound")
    assert {(row[0], row[3], row[4]) for row in _names(_rows(source()))} == {
        ("mongodb-geo", name, '{"persistentvolume":"geo-pv","phase":"Bound"}'),
        ("mongodb-geo", name_of_claim, '{"persistentvolumeclaim":"geo-pvc","phase":"Bound"}'),
    }


def test_a_counter_declared_the_way_of_openmetrics_is_a_counter(source, prometheus) -> None:
    prometheus.metadata = {"requests": "counter", "lag": "unknown"}
    for name in ("requests_total", "lag", "undeclared_total"):
        prometheus.add(name, [(T0 + 1, 1)], namespace="shop", pod=POD, job="p", instance="i")
    rows = _rows(source())
    assert dict(zip(rows["metric"], rows["kind"], strict=True)) == {
        "requests_total": "counter",
        "lag": "gauge",
        "undeclared_total": "counter",
    }


def test_rows_are_in_order_of_time(source, prometheus) -> None:
    for pod in (POD, DEAD):
        _cadvisor(prometheus, CPU, [(at, at) for at in range(0, 300, 5)], cpu="total", pod=pod)
    assert _rows(source())["time"].is_monotonic_increasing


def test_a_namespace_without_samples_has_no_rows(source) -> None:
    assert list(source().snapshot(T0 * SECOND, (T0 + 60) * SECOND)) == []


def test_the_interval_is_that_of_the_containers_job(source, prometheus) -> None:
    containers = _scraped("cadvisor") | {"scrapeUrl": "https://n:10250/metrics/cadvisor", "scrapeInterval": "1m30s"}
    prometheus.targets = [_scraped("pods"), containers]
    assert source().interval_s == 90.0


def test_the_interval_is_the_servers_default_where_no_target_tells(source) -> None:
    assert source().interval_s == 7.0


def test_a_server_that_tells_no_interval_is_refused(source, prometheus) -> None:
    prometheus.config = "{}"
    with pytest.raises(PlatformError, match="shows no scrape interval"):
        _ = source().interval_s


def test_recent_samples_of_one_pod_need_one_request(serve, source, prometheus) -> None:
    now = time.time()
    for pod, offset in ((POD, 0.0), (DEAD, 100.0)):
        for container in ("hotel-reserv-geo", ""):
            samples = [(now - ago, offset + 60 - ago) for ago in (50, 9, 4)]
            prometheus.add(CPU, samples, namespace="shop", pod=pod, container=container, id="x", cpu="total")
    made = source()
    asked: list[str] = []
    prometheus.before_answer = asked.append
    found = made.recent(CPU, POD, 15.0)
    assert found.column_names == ["time", "value"]
    assert found["value"].to_pylist() == [51.0, 56.0]
    assert asked == ["/api/v1/query"]
    assert made.recent(CPU, "nobody-1-2", 15.0).num_rows == 0


def test_the_servers_clock_is_compared_with_ours(source, prometheus) -> None:
    prometheus.clock_ahead_s = 30.0
    assert source().clock_offset_s() == pytest.approx(30.0, abs=5.0)


FAMILY = "http_server_request_duration_seconds"


def _native(count: int, total: float, *buckets: tuple[int, str, str, str]) -> dict[str, Any]:
    return {"count": str(count), "sum": str(total), "buckets": [list(bucket) for bucket in buckets]}


def _histogram_rows(rows: pd.DataFrame) -> dict[tuple[str, str, str], list[tuple[float, float]]]:
    made: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows[rows["metric"].str.startswith(FAMILY)].itertuples():
        made.setdefault((row.metric.removeprefix(FAMILY), row.labels, row.kind), []).append((row.time, row.value))  # type: ignore[union-attr]
    return made


@pytest.mark.parametrize("metadata", [{FAMILY: "histogram"}, {}], ids=["declared", "undeclared"])
def test_a_native_histogram_becomes_the_rows_of_a_classic_one(source, prometheus, metadata) -> None:
    prometheus.metadata = metadata
    zero, low, high = (3, "-0.001", "0.001", "1"), (0, "0.5", "0.707", "2"), (0, "1", "1.414", "4")
    prometheus.add_histograms(
        FAMILY,
        [(T0 + 1, _native(0, 0)), (T0 + 6, _native(2, 1.2, low)), (T0 + 11, _native(7, 6.5, zero, low, high))],
        namespace="shop", pod=POD, http_route="/geo",
    )  # fmt: skip
    route = '{"http_route":"/geo"}'

    def le(bound: str) -> str:
        return f'{{"http_route":"/geo","le":"{bound}"}}'

    assert _histogram_rows(_rows(source())) == {
        ("_bucket", le("0.001"), "bucket"): [(1, 0), (6, 0), (11, 1)],
        ("_bucket", le("0.707"), "bucket"): [(1, 0), (6, 2), (11, 3)],
        ("_bucket", le("1.414"), "bucket"): [(1, 0), (6, 2), (11, 7)],
        ("_bucket", le("+Inf"), "bucket"): [(1, 0), (6, 2), (11, 7)],
        ("_sum", route, "sum"): [(1, 0), (6, 1.2), (11, 6.5)],
        ("_count", route, "count"): [(1, 0), (6, 2), (11, 7)],
    }


def test_a_bound_inside_of_a_wider_bucket_has_no_count(source, prometheus) -> None:
    fine, coarse = ((0, "1", "1.414", "2"), (0, "1.414", "2", "3")), ((0, "1", "2", "6"),)
    samples = [(T0 + 1, _native(5, 7.0, *fine)), (T0 + 6, _native(6, 8.0, *coarse))]
    prometheus.add_histograms(FAMILY, samples, namespace="shop", pod=POD)
    found = _histogram_rows(_rows(source()))
    assert found["_bucket", '{"le":"1.414"}', "bucket"] == [(1, 2)]
    assert found["_bucket", '{"le":"2"}', "bucket"] == [(1, 5), (6, 6)]


def test_a_histogram_that_the_server_keeps_in_both_forms_is_one(source, prometheus) -> None:
    at = {"namespace": "shop", "pod": POD}
    prometheus.metadata = {FAMILY: "histogram"}
    prometheus.add_histograms(FAMILY, [(T0 + 1, _native(2, 1.2, (0, "0.5", "0.707", "2")))], **at)
    for part, labels in (("_bucket", {"le": "1"}), ("_bucket", {"le": "+Inf"}), ("_sum", {}), ("_count", {})):
        prometheus.add(FAMILY + part, [(T0 + 1, 2)], **at, **labels)
    found = _histogram_rows(_rows(source()))
    assert sorted(labels for part, labels, _ in found if part == "_bucket") == ['{"le":"+Inf"}', '{"le":"1"}']


def test_a_histogram_that_cannot_become_rows_is_named(source, prometheus) -> None:
    _cadvisor(prometheus, CPU, [(1, 5)], cpu="total")
    _cadvisor(prometheus, CPU, [(1, 5)], cpu="total", pod=DEAD)
    prometheus.metadata = {"queue_depth": "gaugehistogram"}
    prometheus.add_histograms("queue_depth", [(T0 + 1, _native(2, 1.2))], namespace="shop", pod=POD)
    prometheus.add_histograms("strange", [(T0 + 1, {"total": "2"})], namespace="shop", pod=POD)
    made = source()
    assert set(_rows(made)["metric"]) == {CPU}
    assert [note.partition(" has no rows")[0] for note in made.notes] == ["queue_depth", "strange"]
    assert "current values" in made.notes[0]
    assert "not a histogram" in made.notes[1]


def test_exemplars_have_the_names_of_their_series_and_the_ids_of_their_traces(source, prometheus) -> None:
    trace, span = "B2867E2F-B442-0D35-A565-B2450993FAB3", "00f067aa0ba902b7"
    labels = {"__name__": f"{FAMILY}_bucket", "le": "0.5", "job": "pods", "namespace": "shop", "pod": POD}
    at = [
        {"labels": {"trace_id": trace, "span_id": span}, "value": "0.4", "timestamp": T0 + 11.207},
        {"labels": {}, "value": "0.2", "timestamp": T0 + 3},
        {"labels": {"trace_id": trace}, "value": "0.3", "timestamp": T0 + 600},
    ]
    prometheus.exemplars = [(labels, at), ({**labels, "namespace": "other"}, at)]
    first, last = source().exemplars(T0 * SECOND, (T0 + 600) * SECOND)
    assert (first["time"], first["value"], first["trace_id"]) == ((T0 + 3) * SECOND, 0.2, None)
    assert last == {
        "time": T0 * SECOND + 11_207_000_000, "service": "geo", "pod": POD, "metric": f"{FAMILY}_bucket",
        "labels": '{"le":"0.5"}', "value": 0.4, "trace_id": trace.replace("-", "").lower(), "span_id": span,
    }  # fmt: skip
