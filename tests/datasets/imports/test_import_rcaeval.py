"""RCAEval's three layouts, on small files in their documented shape; every known trap of its data is a test."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faultset.core.console import root as faultset
from faultset.core.errors import DataError
from faultset.datasets import validation
from faultset.datasets.checks.verification import verify
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.columns import number_matrix, numbers
from faultset.datasets.imports.examination import examine
from faultset.datasets.imports.formats.rcaeval import RCAEvalImport
from faultset.datasets.imports.importer import episode_id, import_dataset
from faultset.datasets.metrics import frames
from faultset.datasets.testing import check_importer
from faultset.datasets.views import EpisodeView
from tests.datasets.imports.importing import load, problems

START = 1_690_000_000
ROWS, ONSET = 100, 60
SERVICES = ("frontend", "cartservice", "ts-order-service")
METRICS = ("cpu", "mem", "latency-50", "latency-90")


def frame(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    columns = {f"{service}_{metric}": rng.random(ROWS) for service in SERVICES for metric in METRICS}
    columns["cartservice_cpu"][ONSET:] += 50
    return {"time": np.arange(START, START + ROWS), **columns}


def csv_text(columns: dict[str, np.ndarray]) -> str:
    lines = [",".join(columns)]
    lines += [",".join(str(value) for value in row) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def case_folder(root: Path, name: str = "RE2-OB/cartservice_cpu/1") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "inject_time.txt").write_text(f"{START + ONSET}\n")
    return folder


def zenodo_case(root: Path, name: str = "RE2-OB/cartservice_cpu/1", file: str = "simple_metrics.csv") -> Path:
    folder = case_folder(root, name)
    (folder / file).write_text(csv_text(frame()))
    return folder


imported = partial(load, "rcaeval")


def only(dataset: Dataset) -> str:
    assert len(dataset.episodes) == 1
    return dataset.episodes[0]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_case_becomes_an_episode_with_the_same_samples_and_its_label(source, out):
    zenodo_case(source)
    dataset = imported(source, out)
    episode = only(dataset)
    label, view = dataset.label(episode), dataset.view(episode)
    assert view.services == SERVICES
    assert view.context.app == "online-boutique"
    assert view.context.workload_entry == "frontend"
    assert view.window == (START * 10**9, (START + ROWS) * 10**9)
    assert view.context.source_intervals_s["metrics"] == 1.0
    assert (label.fault, label.targets, label.verdict) == ("cpu", ("cartservice",), "unknown")
    assert label.inject_start_ns == (START + ONSET) * 10**9
    assert label.root_causes[0].metric == "cpu"
    rows = view.metrics()
    assert len(rows) == ROWS * len(SERVICES) * len(METRICS)
    column = rows[(rows["service"] == "cartservice") & (rows["metric"] == "latency-90")]
    assert column["value"].tolist() == frame()["cartservice_latency-90"].tolist()


def test_methods_find_the_metrics_by_role(source, out):
    zenodo_case(source)
    dataset = imported(source, out)
    view = dataset.view(only(dataset))
    assert set(view.wide(roles=["cpu"]).columns) == {(service, "cpu") for service in SERVICES}
    assert len(view.wide(roles=["latency"]).columns) == 2 * len(SERVICES)
    assert {view.catalogue.role_of(metric) for metric in METRICS} == {"cpu", "memory", "latency"}


def test_the_reference_ends_before_the_injection_and_does_not_tell_it_where_it_need_not(source, out):
    zenodo_case(source)
    early = case_folder(source, "RE2-OB/cartservice_mem/1")
    (early / "simple_metrics.csv").write_text(csv_text(frame()))
    (early / "inject_time.txt").write_text(str(START + 20))
    dataset = imported(source, out)
    shares = {}
    for episode in dataset.episodes:
        view = dataset.view(episode)
        shares[dataset.label(episode).fault] = (view.reference[1] - view.window[0]) / 10**9
        assert view.reference[1] <= (dataset.label(episode).inject_start_ns or 0)
    assert shares == {"cpu": 40.0, "mem": 16.0}


def test_all_three_layouts_give_the_same_episode(tmp_path):
    columns = frame()
    zenodo_case(tmp_path / "z")
    flat = case_folder(tmp_path / "f", "re2ob_cartservice_cpu_1")
    times = columns["time"].tolist()
    series = {n: [[t, v] for t, v in zip(times, c.tolist(), strict=True)] for n, c in columns.items() if n != "time"}
    (flat / "metrics.json").write_text(json.dumps(series))
    parquet = tmp_path / "h" / "re2ob_cartservice_cpu_1"
    parquet.mkdir(parents=True)
    pq.write_table(pa.table(columns), parquet / "metrics.parquet")
    index = {"dataset": ["RE2-OB"], "case": ["re2ob_cartservice_cpu_1"], "root_cause_service": ["cartservice"]}
    pq.write_table(
        pa.table(index | {"fault": ["cpu"], "n_metrics": [12], "inject_time": [START + ONSET]}),
        tmp_path / "h" / "cases.parquet",
    )
    found = [imported(tmp_path / layout, tmp_path / f"out-{layout}") for layout in "zfh"]
    episode = episode_id("rcaeval", "RE2-OB/cartservice_cpu/1")
    assert [dataset.episodes for dataset in found] == [(episode,)] * 3
    first = found[0].view(episode).table("metrics")
    for dataset in found[1:]:
        assert dataset.view(episode).table("metrics").equals(first)
        assert dataset.label(episode) == found[0].label(episode)


def test_a_repeated_time_header_and_a_byte_order_mark_are_no_metrics(source, out):
    folder = case_folder(source, "RE1-OB/cartservice_cpu/2")
    columns = frame()
    text = csv_text(columns).splitlines()
    lines = [f"{line.split(',')[0]},{line}" for line in text]
    (folder / "data.csv").write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    found = examine(source)
    assert any("2 time columns" in issue.problem for issue in found.data_issues)
    assert any("byte-order mark" in issue.problem for issue in found.data_issues)
    dataset = imported(source, out)
    metrics = set(dataset.view(only(dataset)).metrics()["metric"])
    assert metrics == set(METRICS)


def test_missing_and_infinite_samples_stay_missing(source, out):
    columns = {name: column.astype(object) for name, column in frame().items()}
    columns["frontend_cpu"][3] = ""
    columns["frontend_cpu"][4] = "inf"
    columns["frontend_cpu"][5] = "NaN"
    (case_folder(source) / "simple_metrics.csv").write_text(csv_text(columns))
    dataset = imported(source, out)
    rows = dataset.view(only(dataset)).metrics()
    kept = rows[(rows["service"] == "frontend") & (rows["metric"] == "cpu")]
    assert len(kept) == ROWS - 3
    assert np.isfinite(rows["value"]).all()


def test_rows_out_of_order_are_sorted(source, out):
    columns = {name: column[::-1] for name, column in frame().items()}
    (case_folder(source) / "simple_metrics.csv").write_text(csv_text(columns))
    dataset = imported(source, out)
    rows = dataset.view(only(dataset)).metrics()
    kept = rows[(rows["service"] == "frontend") & (rows["metric"] == "mem")]
    assert kept["time"].is_monotonic_increasing
    assert kept["value"].tolist() == frame()["frontend_mem"].tolist()


def test_a_service_name_ends_at_the_first_underscore_and_what_is_no_service_is_no_candidate(source, out):
    columns = frame() | {"main_cpu": np.ones(ROWS), "frontend_istio-request_total": np.arange(ROWS)}
    (case_folder(source) / "simple_metrics.csv").write_text(csv_text(columns))
    dataset = imported(source, out)
    view = dataset.view(only(dataset))
    assert "main" not in view.services
    rows = view.metrics()
    named = rows[rows["metric"] == "istio-request_total"]
    assert (named["service"].iloc[0], named["kind"].iloc[0]) == ("frontend", "gauge")
    assert rows[rows["metric"] == "main_cpu"]["service"].isna().all()


def test_raw_metrics_are_a_last_resort_and_their_totals_are_counters(source, out):
    rows = {
        "frontend_container-cpu-usage-seconds-total": np.arange(ROWS),
        "cartservice_container-threads": np.ones(ROWS),
    }
    columns = {"time": frame()["time"], **rows, "node1_node-load": np.ones(ROWS)}
    (case_folder(source) / "metrics.csv").write_text(csv_text(columns))
    assert any("metrics.csv has raw metric names" in problem for problem in problems(source))
    dataset = imported(source, out)
    view = dataset.view(only(dataset))
    kinds = dict(view.metrics()[["metric", "kind"]].drop_duplicates().itertuples(index=False))
    assert kinds["container-cpu-usage-seconds-total"] == "counter"
    assert kinds["container-threads"] == "gauge"
    assert set(view.services) == {"frontend", "cartservice"}


@pytest.mark.parametrize(("unit", "factor"), [("s", 1), ("ms", 10**3), ("µs", 10**6), ("ns", 10**9)])
def test_the_magnitude_of_a_log_time_tells_its_unit(source, out, unit, factor):
    folder = zenodo_case(source)
    stamp = (START + 10) * factor
    (folder / "logs.csv").write_text(
        "time,timestamp,container_name,message,level,req_path,error,cluster_id,log_template\n"
        f'09:00,{stamp},cartservice,"two\nlines, one message",WARN,,,1,\n'
        f"09:00,{stamp},jaeger,hello,,,,,\n"
    )
    dataset = imported(source, out)
    logs = dataset.view(only(dataset)).logs().sort_values("container", ignore_index=True)
    assert [when.value for when in logs["time"]] == [(START + 10) * 10**9] * 2
    assert logs["service"].tolist()[0] == "cartservice"
    assert logs["service"].isna().tolist() == [False, True]
    assert logs["message"][0] == "two\nlines, one message"
    assert logs["level"].tolist()[0] == "warning"
    if unit != "ns":
        assert any(f" is in {unit}." in problem for problem in problems(source))


SPAN_HEADER = (
    "time,traceID,spanID,serviceName,methodName,operationName,startTimeMillis,startTime,duration,statusCode,"
    "parentSpanID\n"
)


def test_spans_are_read_once_with_microseconds_status_and_the_metrics_name_of_their_service(source, out):
    folder = zenodo_case(source)
    at = (START + 10) * 10**6
    (folder / "traces.csv").write_text(
        SPAN_HEADER
        + f"09:00,t1,a1,frontendservice,GET,Recv.,0,{at},2500,200,\n"
        + f"09:00,t1,a2,cartservice,GetCart,hipstershop.CartService/GetCart,0,{at + 5},1000,13.0,a1\n"
        + f"09:00,t1,a2,cartservice,GetCart,hipstershop.CartService/GetCart,0,{at + 5},1000,13.0,a1\n"
        + f"09:00,t2,b1,cartservice,GetCart,,0,{at - 10**9},1000,,\n"
    )
    dataset = imported(source, out)
    spans = dataset.view(only(dataset)).spans()
    assert spans["span_id"].tolist() == ["a1", "a2"]
    assert spans["service"].tolist() == ["frontend", "cartservice"]
    assert spans["reported_service"].tolist() == ["frontendservice", "cartservice"]
    assert spans["duration_ns"].tolist() == [2_500_000, 1_000_000]
    assert spans["status"].tolist() == ["ok", "error"]
    assert spans["status_code"].tolist() == [200, 13]
    assert spans["kind"].tolist() == ["server", "server"]
    assert spans["parent_span_id"].isna().tolist() == [True, False]
    assert spans["time"][1].value == (at + 5) * 1_000


def test_traces_with_a_header_and_no_rows_are_an_empty_table(source, out):
    folder = zenodo_case(source, "RE3-SS/carts_f1/1")
    columns = frame() | {"carts_cpu": np.ones(ROWS), "carts-db_cpu": np.ones(ROWS)}
    (folder / "simple_metrics.csv").write_text(csv_text(columns))
    (folder / "traces.csv").write_text(SPAN_HEADER)
    assert any("header but no rows" in problem for problem in problems(source))
    dataset = imported(source, out)
    episode = only(dataset)
    label = dataset.label(episode)
    assert len(dataset.view(episode).spans()) == 0
    assert (label.fault_type, label.root_causes[0].metric) == ("Code Defect", None)
    assert label.root_causes[0].accepted == ("carts", "carts-db")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("inject_time.txt", None, r"inject_time.txt is missing"),
        ("inject_time.txt", str(START - 5), "must be within the recording"),
        ("simple_metrics.csv", "time,frontend_cpu\n1690000000,1\n1690000001\n", r"simple_metrics.csv cannot be read"),
    ],
)
def test_a_case_that_cannot_be_imported_is_refused_and_an_issue(source, file, content, message):
    path = zenodo_case(source) / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=message):
        RCAEvalImport().load(RCAEvalImport().cases(source)[0])
    assert examine(source).data_issues[0].severity == "error"


def test_an_imported_dataset_verifies_and_is_told_that_its_layout_gives_the_onset_away(source, out):
    for number in range(8):
        zenodo_case(source, f"RE2-OB/cartservice_cpu/{number}")
    imported(source, out)
    findings = verify(out)
    assert not [finding for finding in findings if finding.severity == "error"]
    assert any("predictable" in finding.message for finding in findings)


def test_the_weakness_of_the_benchmark_is_in_the_provenance(source, out):
    zenodo_case(source)
    provenance = imported(source, out).provenance["import"]
    assert provenance["format"] == "rcaeval"
    assert "middle of the recording" in provenance["weakness"]


def test_series_without_points_and_points_without_a_value_are_no_samples(source, out):
    flat = case_folder(source, "re2ob_cartservice_cpu_1")
    times = range(START, START + ROWS)
    series = {
        "cartservice_cpu": [[at, 1.0 if at % 2 else None] for at in times],
        # Its own times, between those of the others.
        "frontend_mem": [[at + 0.5, 2.0] for at in times],
        "frontend_cpu": [],
    }
    (flat / "metrics.json").write_text(json.dumps(series))
    dataset = imported(source, out)
    rows = dataset.view(only(dataset)).metrics()
    assert rows.groupby(["service", "metric"], observed=True).size().to_dict() == {
        ("cartservice", "cpu"): ROWS // 2,
        ("frontend", "mem"): ROWS,
    }
    assert set(rows[rows["metric"] == "mem"]["time"].astype("int64") % 10**9) == {500_000_000}


@pytest.mark.parametrize(
    ("fault", "metric"), [("mem", "mem"), ("delay", "latency-90"), ("loss", "latency-90"), ("disk", None), ("f3", None)]
)
def test_the_metric_at_fault_is_the_one_that_the_source_scores_where_the_service_has_it(source, fault, metric):
    folder = case_folder(source, f"RE2-OB/cartservice_{fault}/1")
    (folder / "simple_metrics.csv").write_text(csv_text(frame()))
    label = RCAEvalImport().load(RCAEvalImport().cases(source)[0]).label
    assert label["root_causes"][0]["metric"] == metric


def test_logs_of_three_columns_in_seconds_and_tables_derived_from_them(source, out):
    folder = zenodo_case(source)
    plain = imported(source, out)
    before = {name: plain.view(only(plain)).table(name).num_rows for name in ("metrics", "spans", "logs")}
    (folder / "logs.csv").write_text(f"timestamp,container_name,message\n{START + 10},cartservice,hello\n")
    (folder / "logts.csv").write_text(f"time,cartservice_1\n{START},9\n")
    (folder / "tracets_lat.csv").write_text(f"time,cartservice_GetCart\n{START},9\n")
    (folder / "tracets_err.csv").write_text(f"time,cartservice_GetCart\n{START},9\n")
    dataset = imported(source, out.with_name("again"))
    view = dataset.view(only(dataset))
    assert {name: view.table(name).num_rows for name in before} == before | {"logs": 1}
    assert view.logs()["time"].astype("int64").tolist() == [(START + 10) * 10**9]
    assert view.logs()[["level", "trace_id"]].isna().all().all()


def test_the_injection_is_the_first_line_of_its_file(source):
    (zenodo_case(source) / "inject_time.txt").write_text(f"{START + ONSET}\n\nsome remark\n")
    assert RCAEvalImport().load(RCAEvalImport().cases(source)[0]).label["inject_start"] == (START + ONSET) * 10**9


def test_spans_without_microseconds_start_at_their_milliseconds(source, out):
    folder = zenodo_case(source)
    (folder / "traces.csv").write_text(
        "traceID,spanID,serviceName,operationName,startTimeMillis,duration,statusCode,parentSpanID\n"
        f"t1,a1,cartservice,get,{(START + 10) * 1000 + 7},1,0,\n"
    )
    dataset = imported(source, out)
    spans = dataset.view(only(dataset)).spans()
    assert spans["time"].astype("int64").tolist() == [(START + 10) * 10**9 + 7_000_000]
    assert spans["duration_ns"].tolist() == [1_000]


def test_an_import_keeps_the_frame_that_methods_ask_for_first(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "MIN_CACHED_BYTES", 0)
    zenodo_case(tmp_path / "foreign")
    dataset = imported(tmp_path / "foreign", tmp_path / "out")
    view = dataset.view(only(dataset))
    made = view._make_wide(view.context.resolution_s, None)
    monkeypatch.setattr(EpisodeView, "_make_wide", None)
    pd.testing.assert_frame_equal(view.wide(view.context.resolution_s), made)


def test_many_columns_are_read_as_each_alone_would_be():
    columns = {
        "double": pa.chunked_array([[1.0, float("inf")], [None]]),
        "nothing": pa.chunked_array([pa.nulls(3)]),
        "whole": pa.chunked_array([pa.array([1, 2, None])]),
    }
    doubles = {"a": columns["double"], "b": columns["double"]}
    for chosen in (columns, doubles):
        each = [numbers(column, origin="here") for column in chosen.values()]
        np.testing.assert_array_equal(number_matrix(chosen, origin="here"), each)
    with pytest.raises(DataError, match="column word of here holds text"):
        number_matrix({"word": pa.chunked_array([["x"]])}, origin="here")


def test_the_importer_keeps_what_importers_promise(source: Path) -> None:
    zenodo_case(source)
    check_importer("rcaeval", source)


def test_an_archive_gives_the_episodes_of_its_folder(source: Path, tmp_path: Path) -> None:
    zenodo_case(source)
    packed = Path(shutil.make_archive(str(tmp_path / "RE2-OB"), "zip", source))

    assert RCAEvalImport().recognises(packed)
    assert imported(packed, tmp_path / "two").files == imported(source, tmp_path / "one").files


def test_a_suite_that_only_the_archive_names_is_the_same_in_every_import(tmp_path: Path) -> None:
    zenodo_case(tmp_path / "own", "cartservice_cpu/1")
    packed = Path(shutil.make_archive(str(tmp_path / "own-shop"), "gztar", tmp_path / "own"))

    (case,) = RCAEvalImport().cases(packed)
    assert case.key == "own-shop/cartservice_cpu/1"


def test_an_archive_without_cases_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.csv").write_text("time,a\n1,2\n")
    assert not RCAEvalImport().recognises(Path(shutil.make_archive(str(tmp_path / "other"), "zip", tmp_path)))


def test_an_imported_dataset_is_not_read_again_to_be_checked(source: Path, out: Path, monkeypatch) -> None:
    zenodo_case(source)
    dataset = imported(source, out)
    monkeypatch.setattr(validation, "check_content", lambda *given: pytest.fail("it was checked when it was written"))
    dataset.check_files()


def test_rows_outside_the_view_stop_an_import(source: Path, out: Path, monkeypatch) -> None:
    zenodo_case(source)
    real = RCAEvalImport.load
    shorter = lambda self, case: replace(found := real(self, case), view_end_ns=found.view_end_ns - 2 * 10**9)  # noqa: E731
    monkeypatch.setattr(RCAEvalImport, "load", shorter)
    with pytest.raises(
        DataError, match=r"cannot become an episode: telemetry/metrics\.parquet: \d+ of \d+ rows are out"
    ):
        imported(source, out)
    assert not list((out / "episodes").iterdir())


@pytest.mark.parametrize("file", ["traces.csv", "traces.parquet"])
def test_ids_in_upper_case_and_with_dashes_keep_their_parents(source, out, file):
    folder = zenodo_case(source)
    spans = {
        "traceID": ["00AB", "00-ab", "00ab"],
        "spanID": ["C-1", "d2", "E3"],
        "parentSpanID": [None, "c1", "D2"],
        "serviceName": ["frontendservice", "cartservice", "cartservice"],
        "operationName": ["a", "b", "c"],
        "startTime": [(START + 10) * 10**6] * 3,
        "duration": [5, 4, 3],
        "statusCode": ["0"] * 3,
    }
    pd.DataFrame(spans).to_csv(folder / file, index=False) if file.endswith("csv") else pq.write_table(
        pa.table(spans), folder / file
    )
    dataset = imported(source, out)
    rows = dataset.view(only(dataset)).spans().sort_values("span_id")
    assert rows["trace_id"].tolist() == ["00ab"] * 3
    assert rows["span_id"].tolist() == ["c1", "d2", "e3"]
    assert rows["parent_span_id"].tolist()[1:] == ["c1", "d2"]
    assert rows["kind"].tolist() == ["server", "server", "internal"]


def two_inputs(root: Path, name: str = "RE1-SS/cartservice_cpu/1") -> Path:
    """Write a case with a raw export beside the simple file that RCAEval's published tables are of."""
    folder = zenodo_case(root, name, file="simple_data.csv")
    raw = {"time": frame()["time"], "cartservice_container-cpu-usage-seconds-total": np.arange(ROWS)}
    (folder / "data.csv").write_text(csv_text(raw))
    return folder


def metrics_of(dataset: Dataset) -> set[str]:
    return {metric for episode in dataset.episodes for metric in dataset.view(episode).metrics()["metric"].unique()}


@pytest.mark.parametrize(
    ("simple", "raw"), [("simple_data.csv", "data.csv"), ("simple_metrics.csv", "metrics.csv")], ids=["RE1", "RE2"]
)
def test_the_simple_file_is_read_before_the_raw_export_and_the_doctor_names_both(source, out, simple, raw):
    folder = two_inputs(source)
    (folder / "simple_data.csv").rename(folder / simple)
    (folder / "data.csv").rename(folder / raw)
    issue = next(issue for issue in examine(source).data_issues if issue.handling.startswith(f"{simple} is read"))
    assert issue.problem == f"The case has several input files: {raw}, {simple}."
    assert f"Input file: {simple}." in examine(source).summary
    dataset = imported(source, out)
    assert metrics_of(dataset) == set(METRICS)
    assert dataset.provenance["import"]["inputs"] == {simple: 1}
    assert f'"{simple}": 1' in (out / "README.md").read_text()


def test_the_input_that_a_user_names_is_read_where_there_is_one(source, out):
    two_inputs(source)
    zenodo_case(source, "RE2-OB/cartservice_mem/1")
    examination = examine(source, input_file="data.csv")
    assert "Input files: data.csv (1 case), simple_metrics.csv (1 case)." in examination.summary
    assert examination.next.endswith("OUT --input data.csv")
    import_dataset("rcaeval", source, out, workers=1, input_file="data.csv")
    dataset = open_dataset(out)
    assert metrics_of(dataset) == {*METRICS, "container-cpu-usage-seconds-total"}
    assert dataset.provenance["import"]["inputs"] == {"data.csv": 1, "simple_metrics.csv": 1}


def test_an_input_that_no_case_has_is_one_sentence_and_an_import_from_another_file_is_refused(source, out):
    two_inputs(source)
    sentence = "--input is metrics.csv, but no case has that file; choose one of data.csv, simple_data.csv"
    for arguments in (("import", "rcaeval", source, out), ("doctor", source)):
        result = CliRunner().invoke(faultset, ["dataset", *map(str, arguments), "--input", "metrics.csv"])
        assert (result.exit_code, result.stderr) == (3, f"Error: {sentence}\n")
    imported(source, out)
    with pytest.raises(DataError, match=r"was imported into .* from simple_data.csv; choose another folder"):
        import_dataset("rcaeval", source, out, workers=1, input_file="data.csv")


def test_every_file_that_an_episode_is_read_from_is_in_its_evidence(source, out):
    folder = two_inputs(source)
    (folder / "logs.csv").write_text(f"timestamp,container_name,message\n{START + 10},cartservice,hello\n")
    dataset = imported(source, out)
    evidence = dataset[only(dataset)].evidence
    inputs = evidence[evidence["check"] == "input"]
    assert inputs["subject"].tolist() == ["inject_time.txt", "logs.csv", "simple_data.csv"]
    assert inputs["passed"].all()
