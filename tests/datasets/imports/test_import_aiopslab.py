"""AIOpsLab's exports on small files in their documented shape, and the traps of its observer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import open_dataset
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer
from faultset.datasets.views import EpisodeView

SECOND = 10**9
START = 1_756_135_740
USER, GEO = "user-7d5f6d4c9b-x2k4f", "mongodb-geo-5b67c48447-mv5hb"
CPU, RECEIVED = "container_cpu_usage_seconds_total", "container_network_receive_bytes_total"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat().replace("+00:00", "Z")


def write_metrics(folder: Path, metric: str, *, kpi: str | None = None, first: int = 0, rows: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["timestamp,cmdb_id,kpi_name,value"]
    for row in range(first, first + rows):
        lines += [f"{START + 15 * row},10.0.0.7:10250.{pod},{kpi or metric},{row * 1.5}" for pod in (USER, GEO)]
    (folder / f"kpi_{metric}.csv").write_text("\n".join(lines) + "\n")


def write_traces(folder: Path, *, start: float = START + 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = "trace_id,span_id,parent_span,service_name,operation_name,start_time,duration,has_error,response"
    micro = round(start * 1e6)
    rows = [
        f"t1,s1,ROOT,frontend,HTTP GET /hotels,{micro},5000,False,200",
        f"t1,s2,s1,user,CheckUser,{micro + 500},1500,True,Unknown",
        f"t1,s3,s2,user,mongo,{micro + 600},200,False,Unknown",
    ]
    # The observer asks once for each service, and every answer has the whole trace.
    (folder / "traces_1756135800.csv").write_text("\n".join([header, *rows, *rows]) + "\n")


def write_logs(folder: Path, *, lines: int = 2, hours_off: int = 5) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [",log_id,timestamp,date,pod_name,container_name,namespace,node_name,message"]
    for row in range(lines):
        at = START + 2 + row * 0.001
        message = '"{""level"":""error""} panic: no, reachable\nservers"' if row == 0 else "Jan 1 INFO started"
        rows.append(f"{row},id{row},{at + hours_off * 3600},{iso(at)},{USER},hotel,test,node1,{message}")
    rows.insert(2, rows[1])
    (folder / "log_1756135800.csv").write_text("\n".join(rows) + "\n")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "observer" / "telemetry_data_20250825_153000"
    metric = folder / "metric" / "metric_20250825_152900"
    write_metrics(metric / "container", CPU)
    write_metrics(metric / "container", RECEIVED, kpi=f"{RECEIVED}.eth0")
    (metric / "istio").mkdir()
    write_traces(folder / "trace")
    write_logs(folder / "log")
    return folder


def label(export: Path, **fields: object) -> None:
    content = {"fault": "network_loss", "targets": ["user"], "inject_time": iso(START + 300)} | fields
    (export / "label.json").write_text(json.dumps(content))


def only(path: Path, out: Path) -> EpisodeView:
    import_dataset("aiopslab", path, out, workers=1)
    dataset = open_dataset(out)
    (episode,) = dataset.episodes
    return dataset.view(episode)


def test_an_export_with_a_label_becomes_an_episode_that_verifies(export: Path, tmp_path: Path) -> None:
    label(export)
    view = only(export.parent, tmp_path / "out")
    told = open_dataset(tmp_path / "out").label(view.episode)

    assert (told.fault, told.targets, told.inject_start_ns) == ("network_loss", ("user",), (START + 300) * SECOND)
    assert view.services == ("frontend", "mongodb-geo", "user")
    assert not [finding for finding in verify(tmp_path / "out") if finding.severity == "error"]


def test_an_export_without_a_label_is_called_unlabelled_and_doctor_warns(export: Path, tmp_path: Path) -> None:
    view = only(export, tmp_path / "out")
    told = open_dataset(tmp_path / "out").label(view.episode)

    assert (told.fault, told.no_fault_kind, told.verdict) == (None, "unlabelled", "unknown")
    open_dataset(tmp_path / "out").check_files(1)
    assert any("no label.json" in issue.problem for issue in examine(export).data_issues)


def test_a_span_that_every_service_of_its_trace_was_asked_for_comes_once(export: Path, tmp_path: Path) -> None:
    spans = only(export, tmp_path / "out").spans().set_index("span_id")

    assert len(spans) == 3
    assert spans["parent_span_id"].isna().to_dict() == {"s1": True, "s2": False, "s3": False}
    assert spans["duration_ns"].to_dict() == {"s1": 5_000_000, "s2": 1_500_000, "s3": 200_000}
    assert spans["kind"].to_dict() == {"s1": "server", "s2": "server", "s3": "internal"}
    assert spans["status"].to_dict() == {"s1": "unset", "s2": "error", "s3": "unset"}
    assert spans["status_code"].dropna().to_dict() == {"s1": 200}
    assert any("3 of 6 spans" in issue.problem for issue in examine(export).data_issues)


def test_log_times_come_from_the_date_because_the_stamp_is_local(export: Path, tmp_path: Path) -> None:
    logs = only(export, tmp_path / "out").logs()

    assert logs["time"].astype("int64").min() == (START + 2) * SECOND
    assert any("timestamp is +5.0 h away from date" in issue.problem for issue in examine(export).data_issues)


def test_messages_with_line_breaks_stay_whole_and_repeated_lines_come_once(export: Path, tmp_path: Path) -> None:
    logs = only(export, tmp_path / "out").logs()

    assert logs["message"].tolist() == ['{"level":"error"} panic: no, reachable\nservers', "Jan 1 INFO started"]
    assert logs["service"].tolist() == ["user", "user"]


def test_counters_stay_raw_and_the_interface_becomes_a_label(export: Path, tmp_path: Path) -> None:
    metrics = only(export, tmp_path / "out").metrics()
    received = metrics[metrics["metric"] == RECEIVED]

    assert set(metrics["kind"]) == {"counter"}
    assert set(received["labels"]) == {'{"interface":"eth0"}'}
    assert received[received["pod"] == USER]["value"].tolist() == [1.5 * row for row in range(40)]
    assert set(metrics["service"]) == {"user", "mongodb-geo"}


def test_windows_that_were_asked_for_twice_give_each_sample_once(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for stamp, first in (("20250825_152900", 0), ("20250825_153900", 20)):
        write_metrics(work / "metrics_output" / f"metric_{stamp}" / "container", CPU, first=first)
    write_traces(work / "trace_output")
    view = only(work, tmp_path / "out")

    assert len(view.metrics()) == 2 * 60
    assert view.context.source_intervals_s["metrics"] == 15.0


def test_a_pods_sample_is_the_largest_of_those_that_its_containers_have(export: Path, tmp_path: Path) -> None:
    path = next(export.rglob(f"kpi_{CPU}.csv"))
    lines = ["timestamp,cmdb_id,kpi_name,value"]
    for row in range(3):
        at = START + 15 * row
        lines += [f"{at},10.0.0.7:10250.{USER},{CPU},{value + row}" for value in (0.5, 7.25, 3.0)]
    path.write_text("\n".join(lines) + "\n")
    metrics = only(export, tmp_path / "out").metrics()

    assert metrics[metrics["metric"] == CPU]["value"].tolist() == [7.25, 8.25, 9.25]


def test_workloads_come_from_the_names_of_pods_behind_the_last_dot(export: Path, tmp_path: Path) -> None:
    path = next(export.rglob(f"kpi_{CPU}.csv"))
    pods = {"media-mongodb-0": "media-mongodb", "nginx-thrift-6cf6f5bc7d-8wvxz": "nginx-thrift"}
    rows = [f"{START},ip-10-0-0-7.eu.internal.{pod},{CPU},1" for pod in pods]
    path.write_text("\n".join(["timestamp,cmdb_id,kpi_name,value", *rows]) + "\n")
    metrics = only(export, tmp_path / "out").metrics()
    cpu = metrics[metrics["metric"] == CPU]

    assert dict(zip(cpu["pod"], cpu["service"], strict=True)) == pods


def test_responses_that_are_no_code_have_none_and_errors_are_said_in_words(export: Path, tmp_path: Path) -> None:
    header = "trace_id,span_id,parent_span,service_name,operation_name,start_time,duration,has_error,response"
    micro = START * 1_000_000
    rows = [
        f"t,{name},ROOT,geo,op,{micro},1,{error},{response}"
        for name, error, response in (("a", "True", "500"), ("b", "False", "Unknown"), ("c", "true", ""))
    ]
    (export / "trace" / "traces_1756135800.csv").write_text("\n".join([header, *rows]) + "\n")
    spans = only(export, tmp_path / "out").spans().set_index("span_id")

    assert spans["status"].to_dict() == {"a": "error", "b": "unset", "c": "error"}
    assert spans["status_code"].dropna().to_dict() == {"a": 500}


def test_headers_within_files_and_values_that_are_no_numbers_are_no_samples(export: Path, tmp_path: Path) -> None:
    path = next(export.rglob(f"kpi_{CPU}.csv"))
    header = "timestamp,cmdb_id,kpi_name,value"
    rows = [f"{START + 15 * row},1.{USER},{CPU},{value}" for row, value in enumerate(("1.5", "NaN", "", "4.5"))]
    path.write_text("\n".join([header, *rows[:2], header, *rows[2:]]) + "\n")
    metrics = only(export, tmp_path / "out").metrics()

    assert metrics[metrics["metric"] == CPU]["value"].tolist() == [1.5, 4.5]


def test_an_export_of_usual_size_keeps_every_span_sample_and_line_once(tmp_path: Path) -> None:
    export = tmp_path / "telemetry_data_20250825_153000"
    folder = export / "metric" / "metric_1" / "container"
    for number in range(12):
        write_metrics(folder, f"container_metric_{number}_total", rows=480)
    (export / "trace").mkdir()
    header = "trace_id,span_id,parent_span,service_name,operation_name,start_time,duration,has_error,response"
    rows = [
        f"{trace:032x},{trace:012x}{span:04x},{f'{trace:012x}{span - 1:04x}' if span else 'ROOT'},service-{span},"
        f"op,{START * 1_000_000 + trace * 1000 + span},{100 + span},False,200"
        for trace in range(8000)
        for span in range(4)
    ]
    # A trace stands there once for each of its four services, and answers come service by service.
    (export / "trace" / "traces_1756135800.csv").write_text("\n".join([header, *rows * 4]) + "\n")
    write_logs(export / "log", lines=7400)
    view = only(export, tmp_path / "out")
    spans = view.spans()

    assert (len(view.metrics()), len(view.logs())) == (12 * 480 * 2, 7400)
    assert len(spans) == 32_000
    assert not spans[["trace_id", "span_id"]].duplicated().any()
    assert spans["time"].is_monotonic_increasing
    assert int(spans["parent_span_id"].isna().sum()) == 8000
    children = spans[spans["parent_span_id"].notna()]
    assert set(children["parent_span_id"]) <= set(spans["span_id"])


def test_the_view_is_what_was_observed_and_its_reference_ends_before_the_fault(export: Path, tmp_path: Path) -> None:
    label(export)
    context = only(export, tmp_path / "out").context

    assert (context.view_start_ns, context.view_end_ns) == (START * SECOND, (START + 15 * 39) * SECOND + 1)
    assert context.reference_end_ns < (START + 300) * SECOND


def test_logs_that_fill_a_slice_are_probably_cut_off(export: Path) -> None:
    write_logs(export / "log", lines=7500)

    assert any("the exporter's limit" in issue.problem for issue in examine(export).data_issues)


def test_metrics_that_the_exporter_forgets_are_named(export: Path) -> None:
    assert any(
        "container_threads_max and container_network_receive_errors_total are missing" in issue.problem
        for issue in examine(export).data_issues
    )


def test_an_export_of_metrics_alone_has_the_other_tables_empty(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry_data_1"
    write_metrics(folder / "metric" / "container", CPU)
    view = only(folder, tmp_path / "out")

    assert (len(view.metrics()), len(view.spans()), len(view.logs())) == (80, 0, 0)


def test_a_label_that_names_an_unknown_service_is_refused_with_the_known_ones(export: Path, tmp_path: Path) -> None:
    label(export, targets=["nobody"])

    with pytest.raises(DataError, match=r"nobody, which has no telemetry; choose from frontend, mongodb-geo, user"):
        only(export, tmp_path / "out")


def test_a_label_without_a_time_is_refused(export: Path, tmp_path: Path) -> None:
    (export / "label.json").write_text('{"fault": "x", "targets": ["user"]}')

    with pytest.raises(DataError, match="inject_time"):
        only(export, tmp_path / "out")


def test_a_message_of_two_megabytes_is_read(export: Path, tmp_path: Path) -> None:
    path = export / "log" / "log_1756135800.csv"
    header, *_ = path.read_text().splitlines()
    text = "at x.java:1\n" * 170_000
    path.write_text(f'{header}\n0,a,{START},{iso(START)},{USER},hotel,test,node1,"{text}"\n')
    logs = only(export, tmp_path / "out").logs()

    assert logs["message"].tolist() == [text]


def test_an_older_variant_names_pods_by_cmdb_id(export: Path, tmp_path: Path) -> None:
    (export / "log" / "log_1756135800.csv").write_text(
        f",log_id,timestamp,date,cmdb_id,message\n0,a,{START},{iso(START + 1)},node1.{USER},ready\n"
    )
    logs = only(export, tmp_path / "out").logs()

    assert logs[["service", "pod", "container"]].to_numpy().tolist() == [["user", USER, USER]]


def test_a_fault_that_no_label_may_hold_leaves_its_case_out(export: Path, tmp_path: Path) -> None:
    label(export, fault="\x1b[2J")
    with pytest.raises(DataError, match=r"cannot become an episode: truth/label.parquet: fault must be printable"):
        import_dataset("aiopslab", export.parent, tmp_path / "out", workers=1)
    assert not [*(tmp_path / "out" / "episodes").iterdir()]


def test_the_importer_keeps_what_importers_promise(export: Path) -> None:
    label(export)
    check_importer("aiopslab", export.parent)
