"""Logs, events and object states as tables of a window."""

from __future__ import annotations

import json

import pyarrow as pa

from faultset.collector.platforms.objects import rfc3339_ns
from faultset.collector.platforms.telemetry_sources import EventSource, LogSource, ObjectSource
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


def test_events_are_read_for_a_window(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    middle = bench.now_ns + 1
    bench.advance(5)
    bench.end(bench.name("geo"))
    source = EventSource(bench.cluster.events)
    later = rows(source, middle, bench.now_ns + 1)
    assert [row["reason"] for row in later] == ["Pulled", "Created", "Started"]
    assert {row["count"] for row in later} == {2}
    assert {row["service"] for row in later} == {"geo"}
    assert len(rows(source, 0, middle)) + len(later) == len(bench.cluster.events.events)


def test_object_states_are_repeated_every_ten_seconds_and_told_on_change(bench, manifest):
    bench.apply(manifest.deployment("geo"))
    start = bench.now_ns + 3 * SECOND
    bench.advance(15)
    changed = bench.now_ns
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
    seen = rows(ObjectSource(bench.cluster.changes), 0, bench.now_ns + 1)
    assert {row["time"] for row in seen} == {bench.now_ns}


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


def test_a_character_that_was_cut_in_half_is_replaced(tmp_path):
    folder = tmp_path / "geo-x-y" / "geo-main"
    folder.mkdir(parents=True)
    line = f'{rfc3339_ns(1_700_000_000 * SECOND)} stdout F {{"level":"error","msg":"cut \\ud83d"}}'
    (folder / "0.log").write_text(line + "\n", encoding="utf-8")
    (row,) = rows(LogSource(tmp_path, lambda pod: None), 0, 1_800_000_000 * SECOND)
    assert (row["level"], row["message"]) == ("error", "cut \ufffd")


def test_a_window_without_rows_is_an_empty_table(tmp_path):
    assert rows(LogSource(tmp_path, lambda pod: None), 0, 10) == []
