"""Sources of recordings forget old rows, and later snapshots stay the same."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from faultset.collector.load.request_source import RequestSource
from faultset.collector.load.results import NONE, ResultFile
from faultset.collector.platforms.objects import ChangeLog, EventRecord
from faultset.collector.platforms.telemetry_sources import EventSource, LogSource, ObjectSource
from faultset.collector.sources.stores import MetricStore, SeriesKey, SpanStore
from faultset.datasets.telemetry_formats.spans import SpanRow

SECOND = 1_000_000_000


def test_metrics_before_a_time_are_freed() -> None:
    store = MetricStore()
    numbers = [store.number(SeriesKey("geo", "geo-1", "geo", name, "{}", "gauge")) for name in ("a", "b")]
    for second in range(10):
        store.add(second * SECOND, numbers, [second, 2 * second])
    before = store.window(6 * SECOND, 10 * SECOND).table({})
    store.discard(6 * SECOND)
    assert len(store) == 8
    assert store.window(0, 10 * SECOND).table({}).equals(before)
    store.add(10 * SECOND, numbers, [10, 20])
    assert store.window(10 * SECOND, 11 * SECOND).table({})["value"].to_pylist() == [10, 20]


def test_series_of_pods_that_ended_are_freed_with_their_last_sample() -> None:
    store = MetricStore()
    for restart in range(100):
        pod = f"geo-{restart}"
        numbers = [store.number(SeriesKey("geo", pod, "geo", name, "{}", "gauge")) for name in ("a", "b")]
        store.add(restart * SECOND, numbers, [restart, restart])
        store.discard((restart - 1) * SECOND, {f"geo-{number}" for number in range(restart + 1)})
    assert len(store._series) <= 6
    assert store.pods == {"geo-98", "geo-99"}
    rows = store.window(0, 100 * SECOND).table({}).to_pylist()
    assert [(row["pod"], row["metric"], row["value"]) for row in rows] == [
        (f"geo-{restart}", name, restart) for restart in (98, 99) for name in ("a", "b")
    ]


def test_spans_before_a_time_and_their_words_are_freed() -> None:
    store = SpanStore()

    def add(second: int) -> None:
        store.add(
            SpanRow(
                start_ns=second * SECOND,
                duration_ns=5,
                status_code=200 if second % 2 else None,
                trace_id=bytes([second] * 16),
                span_id=bytes([second] * 8),
                parent_span_id=b"",
                reported_service="geo",
                pod=None,
                peer_service=None,
                operation=f"GET /{second}",
                kind="server",
                status="unset",
                attributes=f'{{"n": {second}}}',
            )
        )

    for second in range(1, 9):
        add(second)
    before = store.window(5 * SECOND, 9 * SECOND).table({})
    store.discard(5 * SECOND)
    assert len(store) == 4
    assert store._words["operation"].words == [f"GET /{second}" for second in range(5, 9)]
    assert store.window(0, 9 * SECOND).table({}).to_pylist() == before.to_pylist()
    add(9)
    assert store.window(9 * SECOND, 10 * SECOND).table({})["operation"].to_pylist() == ["GET /9"]


def rows(source: object, start_s: int, end_s: int) -> list[dict[str, object]]:
    batches = list(source.snapshot(start_s * SECOND, end_s * SECOND))  # type: ignore[attr-defined]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_events_and_states_before_a_time_are_freed() -> None:
    def event(second: int) -> EventRecord:
        words = {"type": "Normal", "reason": f"r{second}", "kind": "Pod", "name": "p", "message": "m"}
        return EventRecord(time_ns=second * SECOND, service=None, count=1, **words)

    recorder: Any = SimpleNamespace(events=[event(second) for second in range(6)])
    EventSource(recorder).discard(3 * SECOND)
    assert [row.reason for row in recorder.events] == ["r3", "r4", "r5"]
    now = 0
    log = ChangeLog(clock=lambda: now, service_of=lambda _: "geo")
    for second, names in ((1, ("a", "b")), (2, ("a",)), (30, ("a",))):
        now = second * SECOND
        for name in names:
            log.record("ConfigMap", name, {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": str(second)}})
    now = 31 * SECOND
    log.record("ConfigMap", "b", None)
    source = ObjectSource(log)
    before = rows(source, 20, 60)
    source.discard(15 * SECOND)
    assert len(log.observations) == 4
    assert rows(source, 20, 60) == before


def test_lines_and_requests_before_a_time_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "geo-1" / "geo" / "0.log"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"1970-01-01T00:00:{second:02}Z stdout F line {second}\n" for second in range(1, 20)))
    logs = LogSource(tmp_path / "logs", lambda _: "geo")
    before = rows(logs, 10, 20)
    logs.discard(10 * SECOND)
    assert logs._offsets[path] == path.read_bytes().index(b"1970-01-01T00:00:10Z")
    assert rows(logs, 0, 20) == before
    file = ResultFile(tmp_path / "requests.bin", ["GET /"])
    for number in range(10):
        common = {"number": number, "scheduled": number * SECOND, "sent": number * SECOND, "endpoint": 0}
        file.write(**common, latency=NONE, status=NONE, outcome="unfinished")
        file.write(**common, latency=5, status=200, outcome="ok")
    file.close()
    requests = RequestSource(tmp_path / "requests.bin")
    seen = rows(requests, 4, 10)
    requests.discard(4 * SECOND)
    assert requests._offset == 8
    assert rows(requests, 0, 10) == seen
    requests.discard(7 * SECOND)
    assert [row["scheduled"].value for row in rows(requests, 0, 10)] == [7 * SECOND, 8 * SECOND, 9 * SECOND]  # type: ignore[attr-defined]
