from __future__ import annotations

import json

import pyarrow as pa
import pytest

from faultset.collector.platforms.local.control_plane.kube_state import state_rows
from faultset.collector.platforms.observation.log_lines import parse_line
from faultset.collector.platforms.observation.sources import EventSource, LogSource, ObjectSource
from faultset.collector.platforms.observation.timestamps import parse_rfc3339_ns, rfc3339_ns
from faultset.datasets.format.schemas import TABLES

SECOND = 1_000_000_000
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def rows(source, start_ns, end_ns):
    batches = list(source.snapshot(start_ns, end_ns))
    table = pa.Table.from_batches(batches)
    wanted = pa.schema([field for field in TABLES[source.table] if field.name != "episode"])
    assert table.schema.equals(wanted, check_metadata=False)
    made = table.to_pylist()
    for row, time_ns in zip(made, table["time"].cast(pa.int64()).to_pylist(), strict=True):
        row["time"] = time_ns
    return made


@pytest.mark.parametrize("time_ns", [0, 1_700_000_000_123_456_789, 951_782_400 * SECOND, 4_102_444_799_999_999_999])
def test_stamps_survive_a_round_trip(time_ns):
    assert parse_rfc3339_ns(rfc3339_ns(time_ns)) == time_ns


def test_events_are_read_for_a_window(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    middle = bench.now + 1
    bench.advance(5)
    bench.end(bench.name("geo"))
    source = EventSource(bench.cluster.events)
    later = rows(source, middle, bench.now + 1)
    assert [row["reason"] for row in later] == ["Pulled", "Created", "Started"]
    assert {row["count"] for row in later} == {2}
    assert {row["service"] for row in later} == {"geo"}
    assert len(rows(source, 0, middle)) + len(later) == len(bench.cluster.events.occurrences)


def test_object_states_are_repeated_every_ten_seconds_and_told_on_change(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    start = bench.now + 3 * SECOND
    bench.advance(15)
    changed = bench.now
    bench.patch("Deployment", "geo", {"spec": {"replicas": 0}})
    bench.advance(15)
    seen = rows(ObjectSource(bench.cluster.changes), start, start + 30 * SECOND)
    deployment = [row for row in seen if row["kind"] == "Deployment"]
    times = [(row["time"] - start) / SECOND for row in deployment]
    assert set(times) >= {0, 10, 20}
    assert times == sorted(times)
    states = {row["time"]: json.loads(row["state"])["replicas"] for row in deployment}
    assert (states[start], states[start + 10 * SECOND], states[start + 20 * SECOND]) == (1, 1, 0)
    assert changed in states
    pods = [row["time"] for row in seen if row["kind"] == "Pod"]
    assert max(pods) < start + 20 * SECOND


def test_nothing_is_repeated_from_before_the_first_object(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    seen = rows(ObjectSource(bench.cluster.changes), 0, bench.now + 1)
    assert {row["time"] for row in seen} == {bench.now}


def test_the_state_of_a_pod_tells_what_an_operator_sees(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    name = bench.name("geo")
    for code in (2, 2):
        bench.end(name, code)
    last = [seen for seen in bench.cluster.changes.observations if seen.name == name][-1]
    state = json.loads(last.state)
    assert (state["phase"], state["node"], state["ready"]) == ("Running", "node-1", False)
    assert state["containers"] == [
        {
            "name": "geo-main",
            "image": "docker.io/faultset/app:1.0.0",
            "ready": False,
            "restartCount": 1,
            "state": "waiting",
            "reason": "CrashLoopBackOff",
            "exitCode": 2,
        }
    ]


def test_only_a_digest_of_a_config_map_is_shown(bench):
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "very secret"}}
    bench.apply(made)
    bench.patch("ConfigMap", "c", {"data": {"key": "other"}})
    states = [json.loads(seen.state) for seen in bench.cluster.changes.observations if seen.kind == "ConfigMap"]
    assert [set(state) for state in states] == [{"digest"}, {"digest"}]
    assert states[0] != states[1]


def test_state_metrics_have_the_names_of_kube_state_metrics(bench, manifest):
    bench.apply(manifest.volume("geo"), manifest.claim("geo"), manifest.claiming("geo"), manifest.service("geo"))
    bench.end(bench.name("geo"), 137, out_of_memory=True)
    found = {
        (metric, *labels.values()): (service, pod, container, kind, value)
        for metric, service, pod, container, labels, kind, value in state_rows(bench.store, bench.cluster.service_of)
    }
    pod = bench.name("geo")
    assert found["kube_deployment_spec_replicas", "geo"] == ("geo", None, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Running"] == ("geo", pod, None, "gauge", 1.0)
    assert found["kube_pod_status_phase", "Pending"][-1] == 0.0
    assert found[("kube_pod_container_status_restarts_total",)] == ("geo", pod, "geo-main", "counter", 1.0)
    assert found["kube_pod_container_status_last_terminated_reason", "OOMKilled"][-1] == 1.0
    assert found["kube_endpoint_address", "geo", "true"][-1] == 1.0
    assert found["kube_persistentvolumeclaim_status_phase", "geo-pvc", "Bound"][-1] == 1.0
    assert found["kube_persistentvolume_status_phase", "geo-pv", "Released"][-1] == 0.0


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("2026-01-02T03:04:05Z INF a.go:32 > Reading config...", "info", "a.go:32 > Reading config..."),
        ("2026-01-02T03:04:05.123Z PNC a.go:1 > no reachable servers", "fatal", "a.go:1 > no reachable servers"),
        ("2026-01-02T03:04:05.123Z [WARN]  agent: gone", "warning", "agent: gone"),
        ("1234:M 02 Jan 2026 03:04:05.678 * Ready to accept connections", "info", "Ready to accept connections"),
        ("1234:C 02 Jan 2026 03:04:05.678 # Configuration loaded", "warning", "Configuration loaded"),
        ("goroutine 18 [running]:", None, "goroutine 18 [running]:"),
        ("", None, ""),
    ],
)  # fmt: skip
def test_stamp_and_level_are_taken_off_a_line(line, level, message):
    found = parse_line(line)
    assert (found.level, found.message) == (level, message)


def test_trace_ids_are_found_in_a_line():
    found = parse_line(f"2026-01-02T03:04:05Z TRC a.go:1 > starts trace_id={TRACE} span_id={SPAN}")
    assert (found.level, found.trace_id, found.span_id) == ("trace", TRACE, SPAN)


def test_logs_of_all_restarts_are_read_in_order(tmp_path):
    folder = tmp_path / "geo-x-y" / "geo-main"
    folder.mkdir(parents=True)
    start = 1_700_000_000 * SECOND
    for restart in (10, 9):
        lines = [
            f"{rfc3339_ns(start + restart * SECOND)} stdout F 2026-01-02T03:04:05Z INF a.go:1 > start {restart}",
            f"{rfc3339_ns(start + restart * SECOND + 1)} stderr P goroutine 1 ",
            f"{rfc3339_ns(start + restart * SECOND + 2)} stderr F [running]:",
        ]
        (folder / f"{restart}.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = LogSource(tmp_path, lambda pod: "geo" if pod == "geo-x-y" else None)
    found = rows(source, start, start + 100 * SECOND)
    assert [row["message"] for row in found] == [
        "a.go:1 > start 9",
        "goroutine 1 [running]:",
        "a.go:1 > start 10",
        "goroutine 1 [running]:",
    ]
    assert {(row["service"], row["pod"], row["container"]) for row in found} == {("geo", "geo-x-y", "geo-main")}
    assert len(rows(source, start, start + 10 * SECOND)) == 2


def test_a_window_without_rows_is_an_empty_table(tmp_path):
    assert rows(LogSource(tmp_path, lambda pod: None), 0, 10) == []
