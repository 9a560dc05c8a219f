"""Datapacks of rcabench, raw and converted, on small files in their documented shape."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError
from faultset.datasets.dataset import Dataset
from faultset.datasets.imports.examination import examine
from faultset.datasets.imports.formats.rcabench import RCABenchImport
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer
from tests.datasets.imports.importing import load, problems

SECOND = 10**9
START = 1_750_000_000
ONSET, END = START + 240, START + 480
TIME = pa.timestamp("ns", tz="UTC")
POD = "ts-order-service-7d9-abcde"
NEW = {
    "start_time": "2025-06-15T15:11:05Z",
    "engine_config": [{"app": "ts-order-service", "chaos_type": "NetworkDelay", "direction": "to"}],
    "ground_truth": [{"service": ["ts-order-service"], "pod": [POD], "metric": ["latency"], "span": []}],
}


def stamps(seconds: list[float]) -> pa.Array:
    return pa.array([round((START + at) * SECOND) for at in seconds], TIME)


def converted_tables(stage: str) -> dict[str, dict[str, Any]]:
    at = [10.0, 20.0, 30.0] if stage == "normal" else [250.0, 260.0, 270.0]
    service = ["ts-order-service", None, "ts-ui-dashboard"]
    pod = [POD, POD, "ts-ui-dashboard-1"]
    first = 0.0 if stage == "normal" else 100.0
    metric = {
        "time": stamps(at),
        "metric": ["k8s.pod.cpu.usage"] * 3,
        "value": [0.5, 0.25, float("nan")],
        "service_name": service,
        "attr.k8s.pod.name": pod,
        "attr.k8s.namespace.name": ["ts5"] * 3,
        "attr.k8s.deployment.name": [None, "ts-order-service", None],
        "attr.source_workload": [None, "a", None],
    }
    counted = {
        "time": stamps(at),
        "metric": ["hubble_http_requests_total"] * 3,
        "value": [first + 1, first + 2, first + 3],
        "service_name": ["ts-order-service"] * 3,
    }
    duration = {
        "time": stamps(at),
        "metric": ["http.server.request.duration"] * 3,
        "service_name": ["ts-order-service"] * 3,
        "count": [first + 1, first + 2, first + 3],
        "sum": [first + 0.5, first + 0.6, first + 0.7],
        "min": [0.1] * 3,
        "max": [0.2] * 3,
    }
    trace = {
        "time": stamps(at),
        "trace_id": ["t1", "t1", "t1"],
        "span_id": [f"{stage}1", f"{stage}2", f"{stage}2"],
        "parent_span_id": ["", f"{stage}1", f"{stage}1"],
        "service_name": ["ts-ui-dashboard", "ts-order-service", "ts-order-service"],
        "span_name": ["GET /", "find", "find"],
        "duration": pa.array([5_000_000, 3_000_000, 3_000_000], pa.uint64()),
        "attr.span_kind": ["Client", "Server", "Server"],
        "attr.status_code": ["Unset", "Error", "Error"],
        "attr.http.response.status_code": pa.array([200, 503, 503], pa.uint16()),
        "attr.k8s.pod.name": ["ts-ui-dashboard-1", POD, POD],
    }
    log = {
        "time": stamps(at),
        "trace_id": ["", "t1", None],
        "span_id": ["", "normal1", None],
        "service_name": service,
        "level": ["WARN", "SEVERE", ""],
        "message": ["a", "b", "c"],
        "attr.k8s.pod.name": pod,
        "attr.template_id": pa.array([1, 2, 3], pa.uint16()),
    }
    return {"metrics": metric, "metrics_sum": counted, "metrics_histogram": duration, "traces": trace, "logs": log}


RAW = {
    "metric": "MetricName", "value": "Value", "service_name": "ServiceName", "count": "Count", "sum": "Sum",
    "min": "Min", "max": "Max", "trace_id": "TraceId", "span_id": "SpanId", "parent_span_id": "ParentSpanId",
    "span_name": "SpanName", "duration": "Duration", "level": "SeverityText", "message": "Body",
    "attr.span_kind": "SpanKind", "attr.status_code": "StatusCode",
}  # fmt: skip
RESOURCE = ("k8s.pod.name", "k8s.namespace.name", "k8s.deployment.name")


def raw_table(kind: str, columns: dict[str, Any]) -> pa.Table:
    """Return a converted table as the database had it: other names, and attributes as JSON text."""
    converted = pa.table(columns)
    rows = converted.to_pylist()
    clock = "TimeUnix" if kind.startswith("metrics") else "Timestamp"
    own = "SpanAttributes" if kind == "traces" else "LogAttributes" if kind == "logs" else "Attributes"
    found: dict[str, Any] = {clock: converted["time"]}
    found |= {RAW[name]: converted[name] for name in converted.column_names if name in RAW}
    if kind == "traces":
        found["SpanKind"] = [f"SPAN_KIND_{word.upper()}" for word in found["SpanKind"].to_pylist()]
        found["StatusCode"] = [f"STATUS_CODE_{word.upper()}" for word in found["StatusCode"].to_pylist()]

    def text(row: dict[str, Any], names: Any) -> str:
        return json.dumps({name: row[f"attr.{name}"] for name in names if row.get(f"attr.{name}") is not None})

    others = [name.removeprefix("attr.") for name in converted.column_names if name.startswith("attr.")]
    others = [name for name in others if name not in RESOURCE and f"attr.{name}" not in RAW]
    found["ResourceAttributes"] = [text(row, RESOURCE) for row in rows]
    found[own] = [text(row, others) for row in rows]
    return pa.table(found)


def datapack(root: Path, name: str = "ts5-order-delay-x1", *, raw: bool = False, injection: Any = NEW) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    environment = {"NORMAL_START": START, "NORMAL_END": ONSET, "ABNORMAL_START": ONSET, "ABNORMAL_END": END}
    (folder / "env.json").write_text(json.dumps({key: str(value) for key, value in environment.items()}))
    (folder / "injection.json").write_text(json.dumps(injection))
    for stage in ("normal", "abnormal"):
        for kind, columns in converted_tables(stage).items():
            table = raw_table(kind, columns) if raw else pa.table(columns)
            pq.write_table(table, folder / f"{stage}_{kind}.parquet")
    return folder


imported = partial(load, "rcabench")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """An import of the unchanged sample."""
    folder = tmp_path_factory.mktemp("sample")
    datapack(folder / "in")
    return imported(folder / "in", folder / "out")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_datapack_becomes_an_episode_with_windows_and_label(dataset: Dataset) -> None:
    view, label = dataset.view(dataset.episodes[0]), dataset.label(dataset.episodes[0])
    assert view.window == (START * SECOND, END * SECOND)
    assert view.context.app == "train-ticket"
    assert set(view.services) == {"ts-order-service", "ts-ui-dashboard"}
    assert (label.fault, label.targets) == ("NetworkDelay", ("ts-order-service",))
    assert (label.system_level, label.fault_type) == ("Operating System", "Network/Storage Issue")
    assert label.inject_start_ns == (START + 265) * SECOND
    assert [(cause.kind, cause.name, cause.metric) for cause in label.root_causes] == [
        ("Service", "ts-order-service", "latency"),
        ("Pod", POD, None),
    ]


def test_raw_and_converted_files_give_the_same_tables(tmp_path):
    datapack(tmp_path / "raw", raw=True)
    datapack(tmp_path / "converted")
    raw, converted = (imported(tmp_path / stage, tmp_path / f"out-{stage}") for stage in ("raw", "converted"))
    episode = raw.episodes[0]
    assert converted.episodes == raw.episodes
    for table in ("metrics", "logs", "spans"):
        found, wanted = (dataset.view(episode).table(table).to_pylist() for dataset in (raw, converted))
        for row in (*found, *wanted):
            # Attributes of a converted file are text; in a raw one numbers may be numbers.
            row.pop("attributes", None)
        assert found == wanted


def test_metrics_keep_pod_and_labels_and_find_the_service_of_a_deployment(dataset: Dataset) -> None:
    rows = dataset.view(dataset.episodes[0]).metrics()
    usage = rows[rows["metric"] == "k8s.pod.cpu.usage"]
    assert len(usage) == 4
    assert set(usage["service"]) == {"ts-order-service"}
    assert set(usage["pod"]) == {POD}
    assert '{"k8s.deployment.name":"ts-order-service","source_workload":"a"}' in set(usage["labels"])


def test_sums_that_only_grow_are_counters_and_histograms_give_rate_and_mean(dataset: Dataset) -> None:
    view = dataset.view(dataset.episodes[0])
    kinds = dict(view.metrics()[["metric", "kind"]].drop_duplicates().itertuples(index=False))
    assert kinds["hubble_http_requests_total"] == "counter"
    assert kinds["http.server.request.duration_count"] == "count"
    assert kinds["http.server.request.duration_sum"] == "sum"
    assert kinds["http.server.request.duration_max"] == "gauge"
    latency = view.wide(step_s=10, roles=["latency"])
    assert ("ts-order-service", "http.server.request.duration_mean") in latency.columns


def test_spans_are_nanoseconds_once_each_with_kind_status_and_peer(dataset: Dataset) -> None:
    spans = dataset.view(dataset.episodes[0]).spans()
    assert spans["span_id"].tolist() == ["normal1", "normal2", "abnormal1", "abnormal2"]
    assert spans["duration_ns"].tolist() == [5_000_000, 3_000_000] * 2
    assert spans["kind"].tolist() == ["client", "server"] * 2
    assert spans["status"].tolist() == ["unset", "error"] * 2
    assert spans["status_code"].tolist() == [200, 503] * 2
    assert spans["parent_span_id"].isna().tolist() == [True, False] * 2


def test_log_levels_are_lowered_and_empty_ids_are_none(dataset: Dataset) -> None:
    logs = dataset.view(dataset.episodes[0]).logs()
    assert logs["level"].astype(object).where(logs["level"].notna(), None).tolist()[:3] == ["warning", "error", None]
    assert logs["trace_id"].isna().tolist()[:3] == [True, False, True]


def test_windows_in_another_time_zone_are_moved_to_the_telemetry(source, out):
    folder = datapack(source)
    hours = 8 * 3600
    said = {"NORMAL_START": START, "ABNORMAL_START": ONSET, "ABNORMAL_END": END}
    (folder / "env.json").write_text(json.dumps({name: str(at + hours) for name, at in said.items()}))
    (folder / "injection.json").write_text(json.dumps(NEW | {"start_time": "2025-06-15T23:11:05"}))
    assert any("by -8 h" in problem for problem in problems(source))
    dataset = imported(source, out)
    label = dataset.label(dataset.episodes[0])
    assert dataset.view(dataset.episodes[0]).window == (START * SECOND, END * SECOND)
    assert label.inject_start_ns == (START + 265) * SECOND


@pytest.mark.parametrize(
    ("injection", "fault", "service"),
    [
        ({"fault_type": 17, "ground_truth": {"service": ["a"]}}, "NetworkDelay", "a"),
        ({"fault_type": "4", "ground_truth": '{"service": ["a"]}'}, "CPUStress", "a"),
        (
            {
                "fault_type": 18,
                "display_config": json.dumps(
                    {"injection_point": {"source_service": "a", "target_service": "b"}, "direction": "from"}
                ),
            },
            "NetworkLoss",
            "b",
        ),
        (
            {
                "engine_config": [{"app": "a", "chaos_type": "PodKill"}, {"app": "b", "chaos_type": "CPUStress"}],
                "ground_truth": [{"service": ["a"]}, {"service": ["b"]}],
            },
            "PodKill + CPUStress",
            "a",
        ),
    ],
    ids=["number", "text", "direction-from", "hybrid"],
)
def test_both_forms_of_the_injection_are_read(source, injection, fault, service):
    datapack(source, injection=injection)
    label = RCABenchImport().load(RCABenchImport().cases(source)[0]).label
    assert label["fault"] == fault
    assert label["targets"][0] == service
    assert label["inject_start"] == ONSET * SECOND


def test_the_verdict_is_manifest_only_where_the_datapack_says_so(source):
    folder = datapack(source)
    case = RCABenchImport().cases(source)[0]
    assert RCABenchImport().load(case).label["verdict"] == "unknown"
    pq.write_table(pa.table({"SpanName": ["GET /"], "Issues": ["{}"]}), folder / "conclusion.parquet")
    assert RCABenchImport().load(case).label["verdict"] == "unknown"
    pq.write_table(pa.table({"SpanName": ["GET /"], "Issues": ['{"p99": 3}']}), folder / "conclusion.parquet")
    assert RCABenchImport().load(case).label["verdict"] == "manifest"


def test_an_invalid_datapack_is_left_out_and_a_missing_modality_is_an_empty_table(source, out):
    datapack(source)
    bad = datapack(source, "ts5-bad")
    (bad / ".invalid").write_text("no traces\n")
    for stage in ("normal", "abnormal"):
        (source / "ts5-order-delay-x1" / f"{stage}_logs.parquet").unlink()
    found = problems(source)
    assert "The datapack is marked invalid: no traces." in found
    assert "There are no logs." in found
    dataset = imported(source, out)
    assert len(dataset.episodes) == 1
    assert len(dataset.view(dataset.episodes[0]).logs()) == 0


@pytest.mark.parametrize(
    ("injection", "message"),
    [
        ({"ground_truth": {"service": ["a"]}}, "must name a fault"),
        ({"fault_type": 99, "ground_truth": {"service": ["a"]}}, "must be 0 to 30"),
        ({"fault_type": 3, "ground_truth": {}}, "must name a faulty service"),
    ],
)
def test_an_injection_that_says_too_little_is_refused(source, injection, message):
    datapack(source, injection=injection)
    with pytest.raises(DataError, match=message):
        RCABenchImport().load(RCABenchImport().cases(source)[0])


def test_a_linked_dataset_folder_is_followed_and_names_the_case(source, tmp_path):
    datapack(tmp_path / "elsewhere")
    (source / "data" / "rcabench").mkdir(parents=True)
    link = source / "data" / "rcabench" / "ts5-order-delay-x1"
    link.symlink_to(tmp_path / "elsewhere" / "ts5-order-delay-x1")
    assert [case.key for case in RCABenchImport().cases(source)] == ["rcabench/ts5-order-delay-x1"]


def test_a_name_that_no_dataset_may_hold_leaves_its_case_out(source: Path, tmp_path: Path) -> None:
    pack = datapack(source)
    injection = json.loads((pack / "injection.json").read_text())
    injection["ground_truth"][0]["service"] = ["\x1b[2J"]
    (pack / "injection.json").write_text(json.dumps(injection))
    with pytest.raises(DataError, match=r"cannot become an episode: context.json: services.* must be printable text"):
        import_dataset("rcabench", source, tmp_path / "out", workers=1)
    assert not [*(tmp_path / "out" / "episodes").iterdir()]


def test_text_that_is_not_utf8_leaves_its_case_out(source: Path, tmp_path: Path) -> None:
    file = datapack(source) / "normal_traces.parquet"
    table = pq.read_table(file)
    offsets = pa.array([0, 2, 4, 6], pa.int32()).buffers()[1]
    damaged = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"\xff\xfe" * 3))
    pq.write_table(table.set_column(table.column_names.index("span_name"), "span_name", damaged), file)
    with pytest.raises(DataError, match=r"a batch for table spans is damaged .*UTF8"):
        import_dataset("rcabench", source, tmp_path / "out", workers=1)


def test_the_importer_keeps_what_importers_promise(source: Path) -> None:
    datapack(source)
    check_importer("rcabench", source)


@pytest.mark.parametrize(
    ("apps", "expected"),
    [(("a", "b"), [("PodKill", "a"), ("CPUStress", "b")]), (("a", "c"), None), ((None, None), None)],
    ids=["each named", "another service", "not named"],
)
def test_the_faults_of_a_hybrid_datapack_are_told_apart_where_it_says_which_is_where(source, apps, expected):
    leaves = [{"app": app, "chaos_type": kind} for app, kind in zip(apps, ("PodKill", "CPUStress"), strict=True)]
    datapack(source, injection={"engine_config": leaves, "ground_truth": [{"service": ["a"]}, {"service": ["b"]}]})
    found = RCABenchImport().load(RCABenchImport().cases(source)[0]).label["faults"]
    assert expected == (found and [(one["fault"], one["target"]) for one in found])


def test_an_archive_gives_the_episodes_of_its_folder(tmp_path: Path) -> None:
    datapack(tmp_path / "in", raw=True)
    packed = Path(shutil.make_archive(str(tmp_path / "packs"), "gztar", tmp_path / "in"))

    assert RCABenchImport().recognises(packed)
    assert imported(packed, tmp_path / "two").files == imported(tmp_path / "in", tmp_path / "one").files


def move_windows(folder: Path, seconds: float) -> None:
    said = {"NORMAL_START": START, "ABNORMAL_START": ONSET, "ABNORMAL_END": END}
    (folder / "env.json").write_text(json.dumps({name: str(at + seconds) for name, at in said.items()}))


@pytest.mark.parametrize("seconds", [8 * 3600, -8 * 3600, 19_800, 20_700, 3600, 40 * 86_400, 3605, 5, 0])
def test_windows_whole_quarters_of_an_hour_away_are_moved_and_others_stay(source, seconds):
    move_windows(datapack(source), seconds)
    start = RCABenchImport().load(RCABenchImport().cases(source)[0]).view_start_ns // SECOND
    assert abs(start - START) <= 30


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (7 * 60, "no telemetry is within the windows of env.json"),
        (8 * 60, "no telemetry is within the windows of env.json"),
        (-8 * 60, "no telemetry is within the windows of env.json"),
        (7.88 * 3600, "no telemetry is within the windows of env.json"),
        (100, "0 of 15 rows of the normal telemetry are in the normal window"),
    ],
)
def test_windows_that_no_time_zone_explains_are_refused_in_one_sentence(source, out, seconds, sentence):
    move_windows(datapack(source), seconds)
    result = CliRunner().invoke(faultset, ["dataset", "import", "rcabench", str(source), str(out), "--workers", "1"])
    assert result.exit_code == 3
    assert sentence in result.stderr.splitlines()[-1]
    errors = [issue.problem for issue in examine(source).data_issues if issue.severity == "error"]
    assert len(errors) == 1
    assert sentence in errors[0]


@pytest.mark.parametrize("stage", ["normal", "abnormal"])
def test_a_stray_line_moves_no_window_and_is_left_out(source, out, stage):
    folder = datapack(source)
    logs = pq.read_table(folder / f"{stage}_logs.parquet")
    stray = logs.slice(0, 1).set_column(0, "time", stamps([-600.0]))
    pq.write_table(pa.concat_tables([logs, stray]), folder / f"{stage}_logs.parquet")
    assert any(issue.problem == "1 rows are outside the windows." for issue in examine(source).data_issues)
    dataset = imported(source, out)
    view = dataset.view(dataset.episodes[0])
    assert view.window == (START * SECOND, END * SECOND)
    assert len(view.logs()) == 6
