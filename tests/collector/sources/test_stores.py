"""Samples and spans in memory, and the tables they become."""

from __future__ import annotations

import pyarrow as pa

from faultset.collector.sources.metric_store import MetricStore, SeriesKey
from faultset.collector.sources.span_store import SpanStore
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.telemetry_formats.spans import SpanRow


def without_episode(table: str) -> pa.Schema:
    return pa.schema([field for field in TABLES[table] if field.name != "episode"])


CPU = SeriesKey(None, "geo-1", "geo", "cpu", "{}", "counter")
STATE = SeriesKey("rate", None, None, "replicas", '{"a":"b"}', "gauge")


def metrics() -> MetricStore:
    store = MetricStore()
    cpu, state = store.number(CPU), store.number(STATE)
    for second in (1, 3, 2):
        store.add(second * 10, (cpu, state), (float(second), 0.5))
    return store


def test_samples_come_out_in_order_of_time_within_a_half_open_window() -> None:
    table = metrics().window(10, 30).table({"geo-1": "geo"})
    assert table.schema.equals(without_episode("metrics"), check_metadata=True)
    assert table.column("value").to_pylist() == [1.0, 0.5, 2.0, 0.5]
    assert table.column("time").cast(pa.int64()).to_pylist() == [10, 10, 20, 20]


def test_the_service_comes_from_the_series_or_from_its_pod() -> None:
    rows = metrics().window(10, 11).table({"geo-1": "geo"}).to_pylist()
    assert [(row["service"], row["pod"], row["container"]) for row in rows] == [
        ("geo", "geo-1", "geo"),
        ("rate", None, None),
    ]
    assert metrics().window(10, 11).table({}).column("service").to_pylist() == [None, "rate"]


def test_a_window_does_not_change_with_what_comes_later() -> None:
    store = metrics()
    window = store.window(0, 1000)
    store.add(40, (store.number(CPU._replace(metric="new")),), (1.0,))
    table = window.table({})
    assert table.num_rows == 6
    assert "new" not in table.column("metric").to_pylist()


def test_names_outside_the_window_are_not_in_its_dictionaries() -> None:
    store = metrics()
    store.add(99, (store.number(SeriesKey(None, "late-1", None, "late", "{}", "gauge")),), (1.0,))
    table = store.window(0, 99).table({"late-1": "late"})
    for column in ("pod", "metric", "service"):
        assert not {"late-1", "late"} & set(table.column(column).chunk(0).dictionary.to_pylist())


def test_empty_windows_have_the_schema() -> None:
    for store, table in ((metrics(), "metrics"), (MetricStore(), "metrics"), (SpanStore(), "spans")):
        empty = store.window(500, 600).table({})
        assert empty.num_rows == 0
        assert empty.schema.equals(without_episode(table), check_metadata=True)


def span(**changes: object) -> SpanRow:
    row = SpanRow(
        start_ns=100,
        duration_ns=5,
        trace_id=bytes(range(16)),
        span_id=b"\x01" * 8,
        parent_span_id=b"",
        reported_service="geo",
        pod="geo-1",
        peer_service=None,
        operation="op",
        kind="server",
        status="ok",
        status_code=None,
        attributes="{}",
    )
    return row._replace(**changes)


def test_spans_become_rows_in_order_of_their_start() -> None:
    store = SpanStore()
    store.add(span(start_ns=200, span_id=b"\x02" * 8, parent_span_id=b"\x01" * 8, status_code=500, pod=None))
    store.add(span(peer_service="rate"))
    store.add(span(start_ns=300))
    table = store.window(100, 300).table({"geo-1": "geo"})
    assert table.schema.equals(without_episode("spans"), check_metadata=True)
    first, second = table.to_pylist()
    assert first["trace_id"] == "000102030405060708090a0b0c0d0e0f"
    assert (first["span_id"], first["parent_span_id"]) == ("01" * 8, None)
    assert (first["service"], first["peer_service"], first["status_code"]) == ("geo", "rate", None)
    assert (second["service"], second["pod"], second["status_code"]) == (None, None, 500)
    assert (second["parent_span_id"], second["duration_ns"], second["kind"]) == ("01" * 8, 5, "server")


def test_a_span_that_was_sent_twice_is_one_row() -> None:
    store = SpanStore()
    for row in (span(), span(), span(trace_id=b"\x07" * 16), span(span_id=b"\x03" * 8), span()):
        store.add(row)
    assert store.window(0, 1000).table({}).num_rows == 3
    assert len(store) == 5


def test_halves_of_surrogate_pairs_are_replaced_in_spans_and_metrics() -> None:
    store = SpanStore()
    store.add(span(attributes='{"text":"cut \ud83d"}', operation="cut \ud83d"))
    store.add(span(span_id=b"\x05" * 8, operation="cut \ud83e"))
    rows = store.window(0, 10**18).table({}).to_pylist()
    assert [row["operation"] for row in rows] == ["cut \ufffd"] * 2
    assert rows[0]["attributes"] == '{"text":"cut \ufffd"}'
    metrics = MetricStore()
    metrics.add(1, [metrics.number(SeriesKey("geo", None, None, "up", '{"a":"\ud83d"}', "gauge"))], [1.0])
    assert metrics.window(0, 10).table({})["labels"].to_pylist() == ['{"a":"\ufffd"}']
