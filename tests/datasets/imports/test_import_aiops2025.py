"""Days of the AIOps Challenge 2025 in their documented layout, and their traps."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer

SECOND = 10**9
DAY = "2025-06-06"
ONSET = datetime(2025, 6, 6, 1, 10, tzinfo=UTC)
"""10 past nine on the source's clock: the half hour before begins in the file of another hour."""
ONSET_NS = int(ONSET.timestamp()) * SECOND
FAULT = {
    "uuid": "345fbe93-80",
    "fault_category": "stress test",
    "fault_type": "cpu stress",
    "instance_type": "pod",
    "instance": "cartservice-0",
    "service": "cartservice",
    "source": "",
    "destination": "",
    "start_time": "2025-06-06T01:10:00Z",
    "end_time": "2025-06-06T01:20:00Z",
}


def write_day(root: Path, faults: list[dict[str, Any]]) -> Path:
    (root / "groundtruth.jsonl").parent.mkdir(parents=True)
    (root / "groundtruth.jsonl").write_text("\n".join(json.dumps(fault) for fault in faults))
    minutes = [ONSET + timedelta(minutes=minute) for minute in range(-60, 15)]
    for name in ("cartservice", "frontend"):
        pod = apm_rows(minutes, object_id=f"{name}-0 (deleted)", object_type="pod")
        write(root, "metric", f"apm/pod/pod_{name}-0_{DAY}", pod)
        write(
            root,
            "metric",
            f"apm/service/service_{name}_{DAY}",
            apm_rows(minutes, object_id=name, object_type="service"),
        )
    owner = {
        "object_type": "node",
        "kubernetes_node": "aiops-k8s-01",
        "instance": "10.0.0.1",
        "device": "sda",
        "pod": None,
    }
    node = [{"time": text(minute), **owner, "node_cpu_usage_rate": 3.5} for minute in minutes]
    write(root, "metric", f"infra/infra_node/infra_node_node_cpu_usage_rate_{DAY}", node)
    tidb = [{"time": text(minute), "object_type": "tikv", "instance": "tikv-0", "qps": 7} for minute in minutes]
    write(root, "metric", f"other/infra_tikv_qps_{DAY}", tidb)
    for hour in ("08", "09"):
        moment = datetime(2025, 6, 6, int(hour) - 8, 50 if hour == "08" else 12, tzinfo=UTC)
        log = {"@timestamp": text(moment), "k8_pod": "cartservice-0", "message": '{"level":"error","msg":"slow"}'}
        write(root, "log", f"log_filebeat-server_{DAY}_{hour}-00-00", [log])
        write(root, "trace", f"trace_jaeger-span_{DAY}_{hour}-00-00", span_rows(moment, hour))
    return root


def write(root: Path, kind: str, name: str, rows: list[dict[str, Any]]) -> None:
    path = root / "phaseone" / DAY / f"{kind}-parquet" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def apm_rows(minutes: list[datetime], **owner: str) -> list[dict[str, Any]]:
    return [{"time": text(minute), **owner, "request": 5, "rrt": float(n)} for n, minute in enumerate(minutes)]


def span_rows(moment: datetime, hour: str) -> list[dict[str, Any]]:
    start_us = int(moment.timestamp()) * 10**6
    process = {"serviceName": "frontend", "tags": [{"key": "name", "type": "string", "value": "frontend-0"}]}
    base = {"traceID": hour * 16, "flags": 1, "operationName": "GET /", "startTime": start_us, "logs": []}
    tags = [
        {"key": "span.kind", "type": "string", "value": "server"},
        {"key": "http.status_code", "type": "int64", "value": "500"},
    ]
    return [
        {**base, "spanID": "a" * 16, "references": [], "duration": 900, "tags": tags, "process": process},
        {
            **base,
            "spanID": "b" * 16,
            "references": [{"refType": "CHILD_OF", "traceID": hour * 16, "spanID": "a" * 16}],
            "duration": 300,
            "tags": tags[:1],
            "process": {"serviceName": "cartservice", "tags": []},
        },
    ]


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def load(root: Path, out: Path) -> Dataset:
    import_dataset("aiops2025", root, out, workers=1)
    return open_dataset(out)


def test_a_fault_becomes_an_episode_with_the_half_hour_before_it(tmp_path: Path) -> None:
    dataset = load(write_day(tmp_path / "data", [FAULT]), tmp_path / "out")
    label, view = dataset.label(dataset.episodes[0]), dataset.view(dataset.episodes[0])

    assert (label.fault, label.targets, label.inject_start_ns) == ("cpu stress", ("cartservice",), ONSET_NS)
    assert (label.root_causes[0].kind, label.root_causes[0].name) == ("Pod", "cartservice-0")
    assert set(view.services) == {"cartservice", "frontend", "aiops-k8s-01", "tikv"}
    metrics = view.metrics()
    times = metrics["time"].astype("int64")
    assert (int(times.min()), int(times.max())) == (ONSET_NS - 1800 * SECOND, ONSET_NS + 540 * SECOND)
    pods = metrics[metrics["metric"] == "pod_rrt"]
    assert set(pods["pod"]) == {"cartservice-0", "frontend-0"}
    assert pods[pods["service"] == "frontend"]["value"].tolist() == [float(minute) for minute in range(30, 70)]
    assert set(metrics[metrics["metric"] == "node_cpu_usage_rate"]["labels"]) == {'{"device":"sda"}'}


def test_logs_and_spans_come_from_the_files_of_both_hours(tmp_path: Path) -> None:
    dataset = load(write_day(tmp_path / "data", [FAULT]), tmp_path / "out")
    view = dataset.view(dataset.episodes[0])

    logs, spans = view.logs(), view.spans()
    assert list(logs["level"]) == ["error", "error"]
    assert set(logs["message"]) == {"slow"}
    assert list(spans["service"]) == ["frontend", "cartservice"] * 2
    assert [code for code in spans["status_code"] if code == code] == [500, 500]
    child = spans[spans["service"] == "cartservice"].iloc[0]
    assert (child["parent_span_id"], child["kind"], child["duration_ns"]) == ("a" * 16, "server", 300_000)
    assert set(spans[spans["service"] == "frontend"]["pod"]) == {"frontend-0"}


def test_both_ends_of_a_network_fault_are_right_answers(tmp_path: Path) -> None:
    network = FAULT | {"source": "frontend", "destination": "cartservice", "instance_type": "service"}
    dataset = load(write_day(tmp_path / "data", [network]), tmp_path / "out")
    cause = dataset.label(dataset.episodes[0]).root_causes[0]
    assert set(cause.accepted) == {"frontend", "cartservice"}


def test_doctor_names_overlapping_faults_and_days_that_are_missing(tmp_path: Path) -> None:
    early = FAULT | {"uuid": "1", "start_time": "2025-06-06T00:45:00Z", "end_time": "2025-06-06T00:55:00Z"}
    absent = FAULT | {"uuid": "2", "start_time": "2025-06-17T01:10:00Z", "end_time": "2025-06-17T01:20:00Z"}
    report = examine(write_day(tmp_path / "data", [FAULT, early, absent]))
    assert [issue.problem for issue in report.data_issues] == [
        "Another fault is active in the half hour before 1 fault.",
        "Telemetry is missing for the days of 1 fault.",
    ]


def test_it_keeps_what_importers_promise(tmp_path: Path) -> None:
    check_importer("aiops2025", write_day(tmp_path / "data", [FAULT]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instance": "redis-cart-0"}, "the faulty redis-cart has no metrics"),
        ({"end_time": "2025-06-06T01:00:00Z"}, "end after its start"),
        ({"start_time": "yesterday"}, "must have a fault in line 1 "),
    ],
)
def test_a_fault_that_contradicts_the_data_is_refused(change: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(write_day(tmp_path / "data", [FAULT | change]), tmp_path / "out")
