"""Nezha's data on a small day in its documented shape, with every trap that is known of it."""

from __future__ import annotations

import csv
import json
import tarfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.dataset import Dataset, open_dataset
from faultset.datasets.imports.formats.nezha import NezhaImport
from faultset.datasets.imports.formats.nezha_files import read_logs, read_spans
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer
from tests.datasets.imports.importing import load, problems

SECOND = 10**9
DAY = "2023-01-29"
GATE, CONTACTS = "ts-gateway-service-6f6cfc45b-h5m2n", "ts-contacts-service-866bd68c97-xcqfx"
GO_ZERO_TIME = -6795364578871345152
METRICS = (
    "Time,TimeStamp,PodName,CpuUsageRate(%),NetworkReceiveBytes,PodServerLatencyP90(s),PodSuccessRate(%),"
    "NodeCpuUsageRate(%)"
)


def ns(clock: str) -> int:
    moment = datetime.strptime(f"{DAY} {clock}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND


def stamp(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // SECOND, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{time_ns % SECOND:09d}Z"


def span(trace: str, number: str, parent: str, pod: str, operation: str, clock: str, length_ns: int) -> list[Any]:
    start = ns(clock)
    return [trace, number, parent, pod, operation, start, start + length_ns, length_ns // 1000]


def line(pod: str, trace: str, number: str, clock: str, text: str, *, stated: int | None = None) -> list[Any]:
    time = ns(clock)
    record = {"log": text + "\n", "stream": "stdout", "time": stamp(time)}
    told = time if stated is None else stated
    return [stamp(time), told, "33.33.33.1", pod, "server", trace, number, json.dumps(record, separators=(",", ":"))]


def java(clock: str, place: str, text: str, trace: str, number: str, level: str = "INFO") -> str:
    return f"{clock}.000 {level}  {place} TraceID: {trace} SpanID: {number} {text}"


def request(trace: str, clock: str, *, broken: bool = False) -> tuple[list[list[Any]], list[list[Any]]]:
    """One request through the gateway to contacts; when broken, the second of two log lines is missing."""
    inner = f"{trace}2"
    spans = [
        span(trace, f"{trace}1", "root", GATE, "/*", clock, 5_000_500),
        span(trace, inner, f"{trace}1", CONTACTS, "GET /contacts", clock, 3_000_000),
    ]
    lines = [line(CONTACTS, trace, inner, clock, java(clock, "c.s.Contacts#31", "find", trace, inner))]
    if not broken:
        lines.append(line(CONTACTS, trace, inner, clock, java(clock, "c.s.Contacts#34", "found", trace, inner)))
    return spans, lines


def write_minute(folder: Path, minute: str, requests: list[tuple[list[list[Any]], list[list[Any]]]]) -> None:
    for kind in ("trace", "log", "traceid"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    with (folder / "trace" / f"{minute}_trace.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            "TraceID SpanID ParentID PodName OperationName StartTimeUnixNano EndTimeUnixNano Duration".split()
        )
        writer.writerows(row for spans, _ in requests for row in spans)
    with (folder / "log" / f"{minute}_log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("Timestamp TimeUnixNano Node PodName Container TraceID SpanID Log".split())
        writer.writerows(row for _, lines in requests for row in lines)
    (folder / "traceid" / f"{minute}_traceid.csv").write_text("t\n")


def write_metrics(folder: Path, *, late_s: int = 0) -> None:
    (folder / "metric").mkdir(parents=True, exist_ok=True)
    for pod in (GATE, CONTACTS):
        rows = [METRICS]
        for minute in range(15):
            clock = f"08:{45 + minute:02d}:10"
            seconds = ns(clock) // SECOND + (late_s if pod == CONTACTS else 0)
            when = f"{DAY} {clock}.39517 +0000 UTC m=+1.47"
            rows.append(f"{when},{seconds},{pod},{minute},7.5,{'NaN' if minute == 4 else 0.02},0,9")
        rows.insert(3, METRICS)
        (folder / "metric" / f"{pod}_metric.csv").write_text("﻿" + "\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_day(tmp_path / "nezha")


def write_day(root: Path) -> Path:
    """Write two faults: one that shows a minute before it is said to be injected, one whose sign never comes."""
    rca, construct = root / "rca_data" / DAY, root / "construct_data" / DAY
    write_minute(construct, "08_47", [request("fa", "08:46:20"), request("fb", "08:46:50")])
    again = request("b", "08:51:00", broken=True)
    write_minute(rca, "08_51", [request("a", "08:50:20"), request("c", "08:50:40", broken=True), again])
    write_minute(rca, "08_52", [again, request("d", "08:51:40", broken=True), request("0d", "08:40:00")])
    write_minute(rca, "08_53", [request("e", "08:52:30", broken=True)])
    write_minute(rca, "08_56", [request("f", "08:55:20")])
    write_minute(rca, "08_57", [request("ab", "08:56:20")])
    write_metrics(rca)
    write_metrics(construct)
    faults = [
        fault("08:51:30", ns("08:51:30") // SECOND - 8 * 3600 + 60, "return"),
        fault("08:56:40", ns("08:56:40") // SECOND, "cpu_contention"),
    ]
    (rca / f"{DAY}-fault_list.json").write_text(json.dumps({"08": faults}))
    answers = {
        "ts-contacts-service": {"return": "c.s.Contacts#31_c.s.Contacts#34", "cpu_contention": "CpuUsageRate(%)"}
    }
    (root / "construct_data" / "root_cause_ts.json").write_text(json.dumps(answers))
    return root


def fault(clock: str, stamp_s: int, kind: str) -> dict[str, str]:
    return {
        "inject_time": f"{DAY} {clock}",
        "inject_timestamp": str(stamp_s),
        "inject_pod": CONTACTS,
        "inject_type": kind,
    }


imported = partial(load, "nezha")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """An import of the unchanged sample."""
    folder = tmp_path_factory.mktemp("sample")
    write_day(folder / "in")
    return imported(folder / "in", folder / "out")


def episode_of(dataset: Dataset, kind: str) -> str:
    return next(e for e in dataset.episodes if dataset.label(e).fault == kind)


def test_every_fault_of_a_nezha_day_is_an_episode_that_verifies(dataset: Dataset) -> None:

    assert len(dataset.episodes) == 2


def test_the_fault_free_minute_is_moved_before_the_view_and_can_be_moved_back(dataset: Dataset) -> None:
    view = dataset.view(episode_of(dataset, "return"))
    context = view.context

    assert context.reference_end_ns == ns("08:50:06")
    assert context.view_end_ns == ns("08:53:16")
    assert context.view_start_ns == context.reference_end_ns - 60 * SECOND
    spans = view.spans()
    reference = spans[spans["time"].astype("int64") < context.reference_end_ns]
    assert set(reference["trace_id"]) == {"fa", "fb"}
    assert (reference["time"].astype("int64") - context.reference_moved_ns).min() == ns("08:46:20")


def test_rows_in_two_files_come_once_and_rows_of_other_minutes_not_at_all(dataset: Dataset) -> None:
    view = dataset.view(episode_of(dataset, "return"))
    own = view.spans()[lambda f: f["time"].astype("int64") >= view.reference[1]]

    assert own.groupby("trace_id", observed=True).size().to_dict() == {"a": 2, "b": 2, "c": 2, "d": 2, "e": 2}
    assert len(view.logs()) == 2 * 2 + 2 + 4


def test_roots_have_no_parent_and_spans_across_services_are_served_and_called(dataset: Dataset) -> None:
    view = dataset.view(episode_of(dataset, "return"))
    first = view.spans()[lambda f: f["trace_id"] == "a"].set_index("span_id")

    assert first["parent_span_id"].isna().tolist() == [True, False]
    assert list(first["kind"]) == ["server", "server"]
    assert first["peer_service"].isna().all(), "the server below shows the call"
    assert first.loc["a1", "duration_ns"] == 5_000_500
    assert view.calls == (("ts-gateway-service", "ts-contacts-service"),)
    assert view.context.workload_entry == "ts-gateway-service"


def test_messages_lose_clock_level_and_ids_which_are_columns(dataset: Dataset) -> None:
    logs = dataset.view(episode_of(dataset, "return")).logs()

    assert set(logs["message"]) == {"c.s.Contacts#31 find", "c.s.Contacts#34 found"}
    assert set(logs["level"]) == {"info"}
    assert set(logs["service"]) == {"ts-contacts-service"}


def test_metric_times_come_from_the_printed_clock_when_the_stamp_is_years_late(root: Path, tmp_path: Path) -> None:
    late = 200_000_000
    write_metrics(root / "rca_data" / DAY, late_s=late)
    dataset = imported(root, tmp_path / "out")
    view = dataset.view(episode_of(dataset, "return"))
    cpu = view.metrics()[lambda f: (f["metric"] == "CpuUsageRate(%)") & (f["service"] == "ts-contacts-service")]

    own = cpu[cpu["time"].astype("int64") >= view.reference[1]]
    assert own["value"].tolist() == [5.0, 6.0, 7.0, 8.0]
    assert any(f"{late} s away" in problem for problem in problems(root))


def test_the_reference_has_the_sample_that_was_taken_at_the_end_of_the_fault_free_minute(dataset: Dataset) -> None:
    view = dataset.view(episode_of(dataset, "return"))
    cpu = view.metrics()[lambda f: (f["metric"] == "CpuUsageRate(%)") & (f["service"] == "ts-contacts-service")]
    reference = cpu[cpu["time"].astype("int64") < view.reference[1]]
    # the fault-free minute ends at 08:47:06: the sample of 08:47:10 describes it, that of 08:46:10 the minute before
    assert reference["value"].tolist() == [2.0]


def test_what_was_not_measured_has_no_row_and_repeated_headers_are_no_samples(dataset: Dataset) -> None:
    metrics = dataset.view(episode_of(dataset, "cpu_contention")).metrics()

    # One reference and four own samples for each pod and metric; only the fifth minute lacks its latency.
    assert metrics.groupby("metric", observed=True).size().to_dict() == {
        "CpuUsageRate(%)": 10,
        "NetworkReceiveBytes": 10,
        "NodeCpuUsageRate(%)": 10,
        "PodServerLatencyP90(s)": 10,
        "PodSuccessRate(%)": 10,
    }
    assert metrics["value"].notna().all()


def test_metrics_of_the_node_belong_to_no_service(dataset: Dataset) -> None:
    metrics = dataset.view(episode_of(dataset, "return")).metrics()
    node = metrics[metrics["metric"] == "NodeCpuUsageRate(%)"]

    assert node["service"].isna().all()
    assert set(node["labels"]) == {f'{{"seen_from_pod":"{pod}"}}' for pod in (GATE, CONTACTS)}


def test_labels_of_metrics_stay_json_whatever_a_pod_is_called(root: Path, tmp_path: Path) -> None:
    for path in root.rglob(f"{CONTACTS}_metric.csv"):
        path.write_text(path.read_text(encoding="utf-8").replace(CONTACTS, f"'{CONTACTS}\\"), encoding="utf-8")
    dataset = imported(root, tmp_path / "out")
    metrics = dataset.view(episode_of(dataset, "return")).metrics()
    node = metrics[metrics["metric"] == "NodeCpuUsageRate(%)"]

    assert {json.loads(text)["seen_from_pod"] for text in node["labels"]} == {GATE, f"'{CONTACTS}\\"}


def test_the_onset_is_the_first_broken_request_where_that_comes_before_the_stated_time(dataset: Dataset) -> None:
    label = dataset.label(episode_of(dataset, "return"))

    assert label.effective_ns == label.inject_start_ns == ns("08:50:40")
    assert label.parameters["inject_time"] == f"{DAY} 08:51:30"
    assert label.verdict == "unknown"


def test_one_broken_request_among_whole_ones_is_no_sign(root: Path, tmp_path: Path) -> None:
    rca = root / "rca_data" / DAY
    write_minute(rca, "08_51", [request("a", "08:50:20"), request("c", "08:50:40", broken=True)])
    write_minute(rca, "08_52", [request("b", "08:51:00"), request("d", "08:51:40", broken=True)])
    dataset = imported(root, tmp_path / "out")

    assert dataset.label(episode_of(dataset, "return")).effective_ns == ns("08:51:40")


def test_without_a_sign_the_stated_time_is_the_onset_in_utc_whatever_the_stamp_says(root: Path, tmp_path: Path) -> None:
    dataset = imported(root, tmp_path / "out")
    label = dataset.label(episode_of(dataset, "cpu_contention"))

    assert label.inject_start_ns == ns("08:56:40")
    assert label.effective_ns is None
    assert label.root_causes[0].metric == "CpuUsageRate(%)"
    found = problems(root)
    assert "inject_timestamp disagrees with inject_time in 1 of 2 faults, by -28740 to -28740 s." in found


def test_a_time_that_was_read_from_the_middle_of_a_message_is_not_used(root: Path) -> None:
    path = root / "rca_data" / DAY / "log" / "08_53_log.csv"
    text = java("08:52:31", "o.a.Servlet#175", 'threw [{"timestamp":"2023-01-29T01:00:00"}]', "cc", "cc1", "ERROR")
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(line(GATE, "cc", "cc1", "08:52:31", text, stated=GO_ZERO_TIME))

    read = read_logs([path])
    odd = read[read["TraceID"] == "cc"].iloc[0]
    assert odd["time"] == ns("08:52:31")
    assert odd["level"] == "error"
    assert odd["message"] == 'o.a.Servlet#175 threw [{"timestamp":"2023-01-29T01:00:00"}]'
    assert any("TimeUnixNano of 1 lines" in problem for problem in problems(root))


def test_a_row_torn_by_two_writers_keeps_the_whole_record_at_its_beginning(root: Path) -> None:
    path = root / "rca_data" / DAY / "log" / "08_53_log.csv"
    row = line(GATE, "cc", "cc1", "08:52:31", java("08:52:31", "u.c.User#48", "get user", "cc", "cc1"))
    rest = 'ulate distance]\\n""","stream"":""stdout"",""time"":""2023-01-29T08:52:31Z""}'
    with path.open("a", newline="") as file:
        csv.writer(file).writerow([*row[:-1], row[-1] + rest, "surplus", "cells"])

    read = read_logs([path])
    assert read[read["TraceID"] == "cc"]["message"].tolist() == ["u.c.User#48 get user"]
    assert any("two writers" in problem for problem in problems(root))


def test_messages_that_are_json_themselves_give_their_severity_and_text(root: Path) -> None:
    path = root / "rca_data" / DAY / "log" / "08_53_log.csv"
    inner = {"http.resp.status": 200, "message": "TraceID: ab SpanID: ab1 Request complete", "severity": "warning"}
    inner["message"] = inner["message"].replace("cc", "ab")
    with path.open("a", newline="") as file:
        csv.writer(file).writerow(line(GATE, "cc", "cc1", "08:52:31", json.dumps(inner)))

    odd = read_logs([path]).query("TraceID == 'cc'").iloc[0]
    assert (odd["level"], odd["message"]) == ("warning", "Request complete")


def test_span_times_of_another_unit_are_told_by_their_magnitude(root: Path) -> None:
    path = root / "rca_data" / DAY / "trace" / "08_53_trace.csv"
    rows = [row.split(",") for row in path.read_text().splitlines()]
    for row in rows[1:]:
        row[5], row[6] = str(int(row[5]) // 1000), str(int(row[6]) // 1000)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)

    assert read_spans([path])["start"].tolist() == [ns("08:52:30")] * 2


def test_a_fault_whose_minutes_are_missing_is_named_and_can_be_left_out(root: Path, tmp_path: Path) -> None:
    for path in (root / "rca_data" / DAY).glob("*/08_5[67]_*.csv"):
        path.unlink()

    with pytest.raises(DataError, match=r"1 of 2 cases .*cpu_contention.*--skip-bad"):
        import_dataset("nezha", root, tmp_path / "out", workers=1)
    done = import_dataset("nezha", root, tmp_path / "out", workers=1, skip_bad=True)
    assert (done.cases, len(done.left_out)) == (2, 1)
    assert any(issue.severity == "error" for issue in examine(root).data_issues)


def test_a_day_without_logs_has_an_empty_table(root: Path, tmp_path: Path) -> None:
    for path in root.glob("*/*/log/*.csv"):
        path.unlink()
    dataset = imported(root, tmp_path / "out")
    view = dataset.view(episode_of(dataset, "return"))

    assert len(view.logs()) == 0
    assert len(view.spans()) == 14
    assert any("There is no file" in problem for problem in problems(root))


def test_a_day_without_its_fault_free_part_is_refused(root: Path) -> None:
    (root / "construct_data" / DAY).rename(root / "elsewhere")

    with pytest.raises(DataError, match="needs fault-free data"):
        NezhaImport().cases(root)


def test_an_archive_gives_the_same_episodes_as_its_folder(root: Path, tmp_path: Path) -> None:
    packed = tmp_path / "day.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(root, arcname=".")
    assert NezhaImport().recognises(packed)
    assert NezhaImport().recognises(root)

    folder, archive = imported(root, tmp_path / "one"), imported(packed, tmp_path / "two")
    assert {e: folder.files[e] for e in folder.episodes} == {e: archive.files[e] for e in archive.episodes}


def test_the_importer_keeps_what_importers_promise(root: Path) -> None:
    check_importer("nezha", root)


def test_minutes_before_other_faults_replace_a_fault_free_time_without_files(tmp_path: Path) -> None:
    root = tmp_path / "nezha"
    rca, construct = root / "rca_data" / DAY, root / "construct_data" / DAY
    faults = []
    for number, minute in enumerate(("08:48", "08:52", "08:56")):
        name, before = minute.replace(":", "_"), f"{minute[:3]}{int(minute[3:]) - 1:02d}"
        write_minute(rca, name, [request(f"{number}a", f"{before}:30"), request(f"{number}b", f"{before}:40")])
        fault = {"inject_time": f"{DAY} {minute}:40", "inject_timestamp": "1", "inject_pod": CONTACTS}
        faults.append(fault | {"inject_type": "return"})
    for kind in ("trace", "log"):
        for path in (rca / "log").glob("*.csv"):
            path.unlink()
        assert (rca / kind).is_dir()
    write_metrics(rca)
    write_metrics(construct)
    (rca / f"{DAY}-fault_list.json").write_text(json.dumps({"08": faults}))
    (root / "construct_data" / "root_cause_ts.json").write_text("{}")
    assert not [issue for issue in examine(root).data_issues if issue.severity == "error"]
    import_dataset("nezha", root, tmp_path / "out")
    dataset = open_dataset(tmp_path / "out")
    assert len(dataset.episodes) == 3
    for view in map(dataset.view, dataset.episodes):
        start_ns, end_ns = view.reference
        assert end_ns - start_ns == 120 * SECOND
        times = view.spans()["time"].astype("int64")
        # two requests of two spans in each of two minutes
        assert int(((times >= start_ns) & (times < end_ns)).sum()) == 8
        metrics = view.metrics()
        cpu = metrics[(metrics["metric"] == "CpuUsageRate(%)") & (metrics["service"] == "ts-contacts-service")]
        assert int((cpu["time"].astype("int64") < end_ns).sum()) == 2
