"""OpenRCA's three systems on small files in their documented shape, and their traps."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from faultset.core.errors import DataError
from faultset.datasets import examine
from faultset.datasets.dataset import open_dataset
from faultset.datasets.imports.formats.openrca import OpenRCAImport
from faultset.datasets.imports.formats.openrca_rows import System
from faultset.datasets.imports.importer import import_dataset
from faultset.datasets.testing import check_importer
from faultset.datasets.views import EpisodeView
from tests.datasets.imports.importing import load, problems

SECOND = 10**9
SLOT = 1_614_841_200
"""15:00 on 2021-03-04 in the source's local time, which is eight hours ahead of UTC."""
FAULT = SLOT + 600


def write(path: Path, header: str, *rows: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("﻿" + "\n".join([header, *rows]) + "\n", encoding="utf-8")


def records(root: Path, *rows: str, header: str = "level,component,timestamp,datetime,reason") -> None:
    write(root / "record.csv", header, *rows)


def bank(root: Path) -> Path:
    system = root / "Bank"
    day = system / "telemetry" / "2021_03_04"
    records(system, f"pod,Tomcat01,{FAULT}.0,2021-03-04 15:10:00,high CPU usage")
    write(
        day / "metric" / "metric_app.csv",
        "timestamp,rr,sr,cnt,mrt,tc",
        f"{SLOT},100.0,99.5,22,53.2,ServiceTest1",
        "timestamp,rr,sr,cnt,mrt,tc",
        f"{SLOT + 60},100.0,,23,60.0,ServiceTest1",
    )
    write(
        day / "metric" / "metric_container.csv",
        "timestamp,cmdb_id,kpi_name,value",
        *[f"{SLOT - 1800 + 60 * row},Tomcat01,OSLinux_CPU_SingleCpuUtil,{row}" for row in range(70)],
        f"{SLOT + 7200},Tomcat01,OSLinux_CPU_SingleCpuUtil,999",
        f"{SLOT},Mysql02,Memory_used,inf",
    )
    write(
        day / "trace" / "trace_span.csv",
        "timestamp,cmdb_id,parent_id,span_id,trace_id,duration",
        f"{SLOT * 1000},Tomcat01,None,a,t1,19",
        f"{SLOT * 1000 + 5},Mysql02,a,b,t1,7",
        f"{SLOT * 1000 + 5},Mysql02,a,b,t1,7",
    )
    write(
        day / "log" / "log_service.csv",
        "log_id,timestamp,cmdb_id,log_name,value",
        f'1,{SLOT},Tomcat01,gc,"3748789.580: [GC, pause\nsecond line]"',
    )
    return system


def market(root: Path) -> Path:
    system = root / "Market" / "cloudbed-1"
    day = system / "telemetry" / "2021_03_04"
    records(
        system,
        f"node,node-5,{FAULT},2021-03-04 15:10:00,node disk space consumption",
        f"pod,adservice2-0,{FAULT + 300},2021-03-04 15:15:00,container network latency",
    )
    write(
        day / "metric" / "metric_container.csv",
        "timestamp,cmdb_id,kpi_name,value",
        f"{SLOT},node-6.adservice2-0,container_cpu_usage_seconds,0.5",
        f"{SLOT + 60},node-6.adservice-1,container_cpu_usage_seconds,0.25",
    )
    write(
        day / "metric" / "metric_mesh.csv",
        "timestamp,cmdb_id,kpi_name,value",
        f"{SLOT},adservice-2.destination.frontend.adservice,istio_requests_total,4",
    )
    write(
        day / "metric" / "metric_runtime.csv",
        "timestamp,cmdb_id,kpi_name,value",
        f"{SLOT},adservice.ts:8088,java_lang_Threading_ThreadCount,30",
    )
    write(
        day / "metric" / "metric_service.csv",
        "service,timestamp,rr,sr,mrt,count",
        f"adservice-grpc,{SLOT},100,100,2.4,73",
    )
    write(day / "metric" / "metric_node.csv", "timestamp,cmdb_id,kpi_name,value", f"{SLOT},node-5,system.disk.used,8")
    write(
        day / "trace" / "trace_span.csv",
        "timestamp,cmdb_id,span_id,trace_id,duration,type,status_code,operation_name,parent_span",
        f"{SLOT * 1000},frontend-0,a,t1,49877,rpc,0,hipstershop.AdService/GetAds,",
        f"{SLOT * 1000 + 1},adservice2-0,b,t1,1200,rpc,14,hipstershop.AdService/GetAds,a",
        f"{SLOT * 1000 + 2},adservice2-0,c,t1,300,http,200,/x,a",
    )
    write(day / "log" / "log_proxy.csv", "log_id,timestamp,cmdb_id,log_name,value", f"1,{SLOT},frontend-0,envoy,hello")
    return system


def telecom(root: Path) -> Path:
    system = root / "Telecom"
    day = system / "telemetry" / "2021_03_04"
    records(system, f"docker_003,{FAULT},2021-03-04 15:10:00,CPU fault", header="component,timestamp,datetime,reason")
    write(
        day / "metric" / "metric_app.csv",
        "serviceName,startTime,avg_time,num,succee_num,succee_rate",
        f"osb_001,{SLOT * 1000},0.333,1,1,1.0",
    )
    write(
        day / "metric" / "metric_container.csv",
        "itemid,name,bomc_id,timestamp,value,cmdb_id",
        f"99,container_cpu_used,ZJ-1,{SLOT * 1000},12,docker_003",
    )
    write(
        day / "trace" / "trace_span.csv",
        "callType,startTime,elapsedTime,success,traceId,id,pid,cmdb_id,dsName,serviceName",
        f"OSB,{SLOT * 1000},2.0,True,t1,a,None,os_021,,osb_001",
        f"JDBC,{SLOT * 1000},1.5,FALSE,t1,b,a,docker_003,db_003,",
    )
    return system


def only(root: Path, out: Path) -> EpisodeView:
    dataset = imported(root, out)
    (episode,) = dataset.episodes
    return dataset.view(episode)


imported = partial(load, "openrca")


def test_all_three_systems_import_side_by_side_and_verify(tmp_path: Path) -> None:
    root = tmp_path / "dataset"
    for build in (bank, market, telecom):
        build(root)
    dataset = imported(root, tmp_path / "out")

    assert OpenRCAImport().recognises(root)
    assert {dataset.view(e).context.app for e in dataset.episodes} == {"bank", "market-cloudbed-1", "telecom"}


def test_day_folders_are_local_and_telemetry_is_utc(tmp_path: Path) -> None:
    bank(tmp_path)
    context = only(tmp_path, tmp_path / "out").context

    assert context.view_start_ns == (SLOT - 1800) * SECOND
    assert context.view_end_ns == (SLOT + 2400) * SECOND
    assert context.reference_end_ns < SLOT * SECOND


def test_a_view_across_local_midnight_reads_both_days(tmp_path: Path) -> None:
    midnight = SLOT + 9 * 3600
    system = bank(tmp_path)
    records(system, f"pod,Tomcat01,{midnight + 60},2021-03-05 00:01:00,high CPU usage")
    for day, at in (("2021_03_04", midnight - 60), ("2021_03_05", midnight + 60)):
        write(
            system / "telemetry" / day / "metric" / "metric_container.csv",
            "timestamp,cmdb_id,kpi_name,value",
            f"{at},Tomcat01,x,1",
        )

    assert len(only(tmp_path, tmp_path / "out").metrics()) == 2


def test_rows_outside_the_view_repeated_headers_and_infinities_are_left_out(tmp_path: Path) -> None:
    bank(tmp_path)
    metrics = only(tmp_path, tmp_path / "out").metrics()

    cpu = metrics[metrics["metric"] == "OSLinux_CPU_SingleCpuUtil"]
    assert cpu["value"].tolist() == [float(row) for row in range(70)]
    assert metrics[metrics["service"] == "ServiceTest1"].groupby("metric", observed=True).size().to_dict() == {
        "cnt": 2,
        "mrt": 2,
        "rr": 2,
        "sr": 1,
    }
    assert "Memory_used" not in set(metrics["metric"])


def test_trace_times_in_milliseconds_and_durations_in_the_units_of_their_system(tmp_path: Path) -> None:
    for number, (build, expected) in enumerate(
        [(bank, [19_000_000, 7_000_000]), (market, [49_877_000, 1_200_000, 300_000]), (telecom, [2_000_000, 1_500_000])]
    ):
        root = tmp_path / str(number)
        build(root)
        spans = only(root, root / "out").spans()

        assert spans["time"].astype("int64").min() == SLOT * SECOND
        assert spans["duration_ns"].tolist() == expected


def test_a_span_that_is_there_twice_comes_once_and_roots_have_no_parent(tmp_path: Path) -> None:
    bank(tmp_path)
    spans = only(tmp_path, tmp_path / "out").spans()

    assert spans["span_id"].tolist() == ["a", "b"]
    assert spans["parent_span_id"].isna().tolist() == [True, False]


def test_success_is_a_word_in_telecom_and_a_code_in_market(tmp_path: Path) -> None:
    telecom(tmp_path / "telecom")
    market(tmp_path / "market")
    one = only(tmp_path / "telecom", tmp_path / "one").spans()
    two = only(tmp_path / "market", tmp_path / "two").spans()

    assert one["status"].tolist() == ["ok", "error"]
    assert one["operation"].tolist() == ["osb_001", "db_003"]
    assert two["status"].tolist() == ["ok", "error", "ok"]
    assert two["status_code"].tolist() == [0, 14, 200]


def test_markets_ids_come_down_to_services_and_nodes(tmp_path: Path) -> None:
    view = only(market(tmp_path), tmp_path / "out")
    metrics = view.metrics()

    assert set(metrics["service"]) == {"adservice", "node-5"}
    assert view.services == ("adservice", "node-5")
    mesh = metrics[metrics["metric"] == "istio_requests_total"]["labels"].tolist()
    assert mesh == ['{"destination":"adservice","seen_as":"destination","source":"frontend"}']


@pytest.mark.parametrize(
    ("cmdb_id", "component"),
    [
        ("node-6.adservice2-0", "adservice"),
        ("productcatalogservice-1", "productcatalogservice"),
        ("node-1", "node-1"),
        ("adservice.ts:8088", "adservice"),
        ("frontend-http", "frontend"),
        ("checkoutservice-2.source.checkoutservice.cartservice", "checkoutservice"),
    ],
)
def test_a_component_of_market_is_found_in_every_kind_of_id(cmdb_id: str, component: str) -> None:
    assert System(root=Path(), app="market-cloudbed-2", records=()).component_of(cmdb_id) == component


def test_records_of_one_half_hour_are_one_episode_with_all_its_causes(tmp_path: Path) -> None:
    market(tmp_path)
    dataset = imported(tmp_path, tmp_path / "out")
    label = dataset.label(dataset.episodes[0])

    assert label.targets == ("node-5", "adservice")
    assert [cause.name for cause in label.root_causes] == ["node-5", "adservice2-0"]
    assert [cause.kind for cause in label.root_causes] == ["Node", "Pod"]
    assert label.inject_start_ns == FAULT * SECOND
    assert any("2 records fall into the same half hour" in problem for problem in problems(tmp_path))


def test_a_system_without_logs_has_an_empty_table(tmp_path: Path) -> None:
    view = only(telecom(tmp_path), tmp_path / "out")

    assert len(view.logs()) == 0
    assert len(view.metrics()) == 5
    assert any("There are no log files" in problem for problem in problems(tmp_path))


def test_log_values_with_line_breaks_stay_whole(tmp_path: Path) -> None:
    logs = only(bank(tmp_path), tmp_path / "out").logs()

    assert logs["message"].tolist() == ["3748789.580: [GC, pause\nsecond line]"]
    assert logs[["service", "container"]].to_numpy().tolist() == [["Tomcat01", "gc"]]


def test_another_record_before_the_onset_is_evidence_against_a_healthy_reference(tmp_path: Path) -> None:
    system = bank(tmp_path)
    records(
        system,
        f"pod,Tomcat01,{FAULT},2021-03-04 15:10:00,high CPU usage",
        f"pod,Mysql02,{SLOT - 900},2021-03-04 14:45:00,JVM out of memory",
    )
    import_dataset("openrca", tmp_path, tmp_path / "out", workers=1)
    from faultset.datasets.format.labels import read_evidence

    dataset = open_dataset(tmp_path / "out")
    later = next(e for e in dataset.episodes if dataset.label(e).targets == ("Tomcat01",))
    row = read_evidence(dataset.path(later)).iloc[0]
    assert not row["passed"]
    assert "JVM out of memory in Mysql02" in row["detail"]


def test_all_times_of_telecom_are_milliseconds_in_every_file_of_metrics(tmp_path: Path) -> None:
    system = telecom(tmp_path)
    header = "itemid,name,bomc_id,timestamp,value,cmdb_id"
    for kind, owner in (("node", "os_021"), ("middleware", "redis_003"), ("service", "db_003")):
        write(
            system / "telemetry" / "2021_03_04" / "metric" / f"metric_{kind}.csv",
            header,
            f"7,{kind}_kpi,ZJ-2,{(SLOT + 90) * 1000},0.5,{owner}",
        )
    view = only(tmp_path, tmp_path / "out")
    metrics = view.metrics()
    told = metrics[metrics["metric"].str.endswith("_kpi")]

    assert {(s, m) for s, m in zip(told["service"], told["metric"], strict=True)} == {
        ("os_021", "node_kpi"),
        ("redis_003", "middleware_kpi"),
        ("db_003", "service_kpi"),
    }
    assert set(told["time"].astype("int64")) == {(SLOT + 90) * SECOND}
    assert set(metrics[~metrics["metric"].str.endswith("_kpi")]["time"].astype("int64")) == {SLOT * SECOND}
    assert {"os_021", "redis_003", "db_003", "docker_003", "osb_001"} <= set(view.services)


def test_words_for_success_come_in_any_case_and_roots_of_telecom_are_called_none(tmp_path: Path) -> None:
    write(
        telecom(tmp_path) / "telemetry" / "2021_03_04" / "trace" / "trace_span.csv",
        "callType,startTime,elapsedTime,success,traceId,id,pid,cmdb_id,dsName,serviceName",
        *[
            f"CSF,{SLOT * 1000 + row},1.0,{word},t1,{row},{parent},docker_003,,x"
            for row, (word, parent) in enumerate((("True", "None"), ("TRUE", "0"), ("False", "a"), ("FALSE", "a")))
        ],
    )
    spans = only(tmp_path, tmp_path / "out").spans()

    assert spans["status"].tolist() == ["ok", "ok", "error", "error"]
    assert spans["parent_span_id"].isna().tolist() == [True, True, False, False]


def test_both_logs_of_market_are_read_and_pods_are_kept_beside_their_service(tmp_path: Path) -> None:
    system = market(tmp_path)
    write(
        system / "telemetry" / "2021_03_04" / "log" / "log_service.csv",
        "log_id,timestamp,cmdb_id,log_name,value",
        f"2,{SLOT + 1},adservice2-0,log_adservice2-service_application,severity: INFO",
    )
    logs = only(tmp_path, tmp_path / "out").logs()

    assert logs["message"].tolist() == ["hello", "severity: INFO"]
    assert logs[["service", "pod"]].to_numpy().tolist() == [["frontend", "frontend-0"], ["adservice", "adservice2-0"]]


def test_records_in_the_next_half_hour_are_another_episode_and_times_may_have_fractions(tmp_path: Path) -> None:
    system = bank(tmp_path)
    rows = [(SLOT + 1799.5, "a"), (SLOT + 1800.0, "b"), (SLOT + 1801.25, "c")]
    records(system, *[f"pod,Tomcat01,{at},2021-03-04 15:30:00,{reason}" for at, reason in rows])
    dataset = imported(tmp_path, tmp_path / "out")
    labels = sorted(
        (dataset.label(episode) for episode in dataset.episodes), key=lambda label: label.inject_start_ns or 0
    )

    assert [label.fault for label in labels] == ["a", "b + c"]
    assert [label.inject_start_ns for label in labels] == [SLOT * SECOND + 1_799_500_000_000, (SLOT + 1800) * SECOND]


def test_one_garbled_time_does_not_move_the_others(tmp_path: Path) -> None:
    write(
        bank(tmp_path) / "telemetry" / "2021_03_04" / "trace" / "trace_span.csv",
        "timestamp,cmdb_id,parent_id,span_id,trace_id,duration",
        f"{SLOT * 1000},Tomcat01,None,a,t1,19",
        f"{SLOT}000000000,Tomcat01,None,b,t1,19",
        "x,Tomcat01,None,c,t1,19",
        f"{SLOT * 1000 + 1},Tomcat01,a,d,t1",
        f"{SLOT * 1000 + 2},Tomcat01,a,e,t1,19",
    )
    spans = only(tmp_path, tmp_path / "out").spans()

    assert spans["span_id"].tolist() == ["a", "e"]
    assert spans["time"].astype("int64").tolist() == [SLOT * SECOND, SLOT * SECOND + 2_000_000]


@pytest.mark.parametrize("block", [512, 16 << 20], ids=["many blocks", "one block"])
def test_rows_come_out_alike_wherever_a_file_is_cut_into_blocks(tmp_path: Path, monkeypatch, block: int) -> None:
    monkeypatch.setattr("faultset.datasets.imports.formats.openrca_rows._BLOCK", block)
    day = bank(tmp_path) / "telemetry" / "2021_03_04"
    span_header = "timestamp,cmdb_id,parent_id,span_id,trace_id,duration"
    parents = ["None" if row % 9 == 0 else f"s{row - 1}" for row in range(99)]
    spans = [f"{SLOT * 1000 + row},Tomcat01,{parents[row]},s{row},t{row // 9},3" for row in range(99)]
    write(day / "trace" / "trace_span.csv", span_header, *spans, span_header, *reversed(spans))
    lines = [f'{row},{SLOT + row},Tomcat01,gc,"line {row}\n  at once, {row}"' for row in range(99)]
    write(day / "log" / "log_service.csv", "log_id,timestamp,cmdb_id,log_name,value", *lines)
    view = only(tmp_path, tmp_path / "out")
    found = view.spans()

    assert found["span_id"].tolist() == [f"s{row}" for row in range(99)]
    assert int(found["parent_span_id"].isna().sum()) == 11
    assert view.logs()["message"].tolist() == [f"line {row}\n  at once, {row}" for row in range(99)]


def test_a_day_of_usual_size_is_cut_to_the_view_and_nothing_within_is_lost(tmp_path: Path) -> None:
    day = bank(tmp_path) / "telemetry" / "2021_03_04"
    second = range(-9000, 9000)
    write(
        day / "metric" / "metric_container.csv",
        "timestamp,cmdb_id,kpi_name,value",
        *[f"{SLOT + at},Tomcat0{name},OSLinux_CPU,{at}" for at in second for name in range(4)],
    )
    write(
        day / "trace" / "trace_span.csv",
        "timestamp,cmdb_id,parent_id,span_id,trace_id,duration",
        *[f"{(SLOT + at) * 1000 + name},Tomcat0{name},None,s{at}.{name},t{at},5" for at in second for name in range(4)],
    )
    view = only(tmp_path, tmp_path / "out")
    length = (view.window[1] - view.window[0]) // SECOND
    metrics, spans = view.metrics(), view.spans()
    cpu = metrics[metrics["metric"] == "OSLinux_CPU"]

    assert length == 4200
    assert len(cpu) == len(spans) == 4 * length
    assert cpu.groupby("service", observed=True)["value"].agg(["min", "max"]).to_numpy().tolist() == [[-1800, 2399]] * 4
    assert spans["time"].is_monotonic_increasing
    assert view.context.source_intervals_s["metrics"] == 1.0


def test_a_day_without_telemetry_is_named(tmp_path: Path) -> None:
    system = bank(tmp_path)
    (system / "telemetry" / "2021_03_04").rename(system / "telemetry" / "2021_03_09")

    with pytest.raises(DataError, match="needs a folder of that day"):
        imported(tmp_path, tmp_path / "out")
    assert any(issue.severity == "error" for issue in examine(tmp_path).data_issues)


def test_a_record_whose_two_times_disagree_is_an_oddity(tmp_path: Path) -> None:
    records(bank(tmp_path), f"pod,Tomcat01,{FAULT},2021-03-04 07:10:00,high CPU usage")

    assert any("disagree in 1 of 1 records" in problem for problem in problems(tmp_path))


def test_children_that_outlive_their_parents_give_a_wrong_unit_away(tmp_path: Path) -> None:
    write(
        market(tmp_path) / "telemetry" / "2021_03_04" / "trace" / "trace_span.csv",
        "timestamp,cmdb_id,span_id,trace_id,duration,type,status_code,operation_name,parent_span",
        f"{SLOT * 1000},frontend-0,a,t1,80,rpc,0,x,",
        f"{SLOT * 1000 + 50},adservice2-0,b,t1,20,rpc,0,x,a",
    )

    assert any("1 of 1 spans begin after their parent" in problem for problem in problems(tmp_path))


def test_the_importer_keeps_what_importers_promise(tmp_path: Path) -> None:
    bank(tmp_path / "dataset")
    check_importer("openrca", tmp_path / "dataset")
