"""The stores of samples and spans, and the reader of Prometheus' text format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from faultset.collector.sources.stores import ExpositionReader, MetricStore, SeriesKey, SpanStore
from faultset.datasets.format.schemas import TABLES
from faultset.datasets.imports.formats import rcabench_files as rcabench
from faultset.datasets.status_codes import GRPC_CODES, is_error_code, parse_status_code
from faultset.datasets.telemetry_formats.prometheus import canonical_labels
from faultset.datasets.telemetry_formats.spans import SpanRow, read_jaeger_spans, read_spans


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


class Register:
    """Numbers series and remembers them."""

    def __init__(self) -> None:
        self.series: list[tuple[str, str, str]] = []

    def __call__(self, metric: str, labels: str, kind: str) -> int:
        self.series.append((metric, labels, kind))
        return len(self.series) - 1


def read(text: str) -> dict[tuple[str, str, str], float]:
    register = Register()
    numbers, values = ExpositionReader(register).read(text)
    return {register.series[number]: value for number, value in zip(numbers, values, strict=True)}


TEXT = """\
# HELP requests_total Requests so far.
# TYPE requests_total counter
requests_total{route="/a b",code="200"} 3
requests_total{route="say \\"hi\\"",code="500"} 4.5e3
# TYPE in_flight gauge
in_flight 7
# TYPE latency_seconds histogram
latency_seconds_bucket{le="0.1"} 1
latency_seconds_bucket{le="+Inf"} 2
latency_seconds_sum 0.3
latency_seconds_count 2
# TYPE size_bytes summary
size_bytes{quantile="0.5"} NaN
size_bytes_sum 10
size_bytes_count 4

unannounced{x="y"} -1
"""


def test_each_sample_has_its_metric_labels_and_kind() -> None:
    samples = read(TEXT)
    nan = samples.pop(("size_bytes", '{"quantile":"0.5"}', "gauge"))
    assert math.isnan(nan)
    assert samples == {
        ("requests_total", '{"code":"200","route":"/a b"}', "counter"): 3.0,
        ("requests_total", '{"code":"500","route":"say \\"hi\\""}', "counter"): 4500.0,
        ("in_flight", "{}", "gauge"): 7.0,
        ("latency_seconds_bucket", '{"le":"0.1"}', "bucket"): 1.0,
        ("latency_seconds_bucket", '{"le":"+Inf"}', "bucket"): 2.0,
        ("latency_seconds_sum", "{}", "sum"): 0.3,
        ("latency_seconds_count", "{}", "count"): 2.0,
        ("size_bytes_sum", "{}", "sum"): 10.0,
        ("size_bytes_count", "{}", "count"): 4.0,
        ("unannounced", '{"x":"y"}', "gauge"): -1.0,
    }


def test_a_series_is_registered_once_however_often_it_is_read() -> None:
    register = Register()
    reader = ExpositionReader(register)
    first = reader.read(TEXT)
    second = reader.read(TEXT.replace("in_flight 7", "in_flight 8"))
    assert first[0] == second[0]
    assert second[1][first[0].index(2)] == 8.0
    assert len(register.series) == 11


def test_series_may_come_and_go() -> None:
    register = Register()
    reader = ExpositionReader(register)
    assert reader.read("a 1\n")[0] == [0]
    assert reader.read("b 1\na 2\n") == ([1, 0], [1.0, 2.0])
    assert reader.read("b 1\n")[0] == [1]


def test_time_stamps_of_the_target_are_ignored() -> None:
    register = Register()
    reader = ExpositionReader(register)
    for time_ms in (1000, 2000):
        _, values = reader.read(f'a{{b="c d"}} 5 {time_ms}\n')
        assert values == [5.0]
    assert set(register.series) == {("a", '{"b":"c d"}', "gauge")}


@pytest.mark.parametrize("text", ["<html> no\n", 'a{b="c 1\n', "a one\n", "alone\n"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        ExpositionReader(Register()).read(text)


def test_everything_that_the_client_library_writes_is_read_as_its_own_parser_reads_it() -> None:
    registry = CollectorRegistry()
    Counter("jobs", "x", ["kind"], registry=registry).labels('quo"te\n\\').inc(2)
    Gauge("free_bytes", "x", registry=registry).set(math.inf)
    Histogram("wait_seconds", "x", ["route"], registry=registry).labels("/").observe(0.2)
    Summary("size", "x", registry=registry).observe(3)
    text = generate_latest(registry).decode()
    expected = {
        (sample.name, canonical_labels(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert {(metric, labels): value for (metric, labels, _), value in read(text).items()} == expected


def test_labels_that_name_the_place_are_dropped() -> None:
    labels = {"namespace": "n", "instance": "i", "id": "/x", "z": "1", "a": "ä"}
    assert canonical_labels(labels) == '{"a":"ä","z":"1"}'


Outcome = tuple[str, int | None, dict[str, Any]]

RPC_ATTRIBUTES = (
    "rpc.response.status_code",
    "rpc.status_code",
    "rpc.grpc.status_code",
    "grpc.status_code",
    "rpc.connect_rpc.error_code",
)
HTTP_ATTRIBUTES = ("http.response.status_code", "http.status_code", "response_code", "http.response_code")
CALLS = [
    *(
        ({name: value}, "unset", 4, True)
        for name in RPC_ATTRIBUTES
        for value in (4, 4.0, "4", "4.0", "DEADLINE_EXCEEDED", "deadline_exceeded", "DeadlineExceeded")
    ),
    *(({name: value}, "unset", 0, False) for name in RPC_ATTRIBUTES for value in (0, "OK", "ok")),
    *(({name: value}, "unset", 503, True) for name in HTTP_ATTRIBUTES for value in (503, 503.0, "503")),
    ({"http.response.status_code": 404}, "unset", 404, False),
    ({"http.status_code": "none"}, "unset", None, False),
    ({"http.status_code": 2**40}, "unset", None, False),
    ({"rpc.response.status_code": "SERVER_TIMEOUT"}, "error", None, True),
    ({"rpc.response.status_code": "-32602"}, "error", None, True),
    ({"http.response.status_code": 200, "rpc.grpc.status_code": 4}, "unset", 4, True),
    ({"http.response.status_code": 200, "rpc.grpc.status_code": 0}, "unset", 200, False),
    ({"db.system.name": "postgresql", "db.response.status_code": "53100"}, "error", None, True),
    ({"db.system.name": "postgresql", "db.response.status_code": "01000"}, "unset", None, False),
    ({"db.system": "oracle", "db.response.status_code": "ORA-17002"}, "error", None, True),
    ({"db.system.name": "mysql", "db.response.status_code": 1205}, "error", None, True),
    ({"db.system.name": "elasticsearch", "db.response.status_code": "201"}, "unset", None, False),
    ({"db.system.name": "elasticsearch", "db.response.status_code": "429"}, "error", None, True),
    ({"db.response.status_code": "OK"}, "unset", None, False),
]


def by_otlp(attributes: Mapping[str, Any]) -> Outcome:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    for name, value in attributes.items():
        field = {bool: "bool_value", int: "int_value", float: "double_value"}.get(type(value), "string_value")
        setattr(span.attributes.add(key=name).value, field, value)
    (row,) = read_spans(request.SerializeToString())
    return row.status, row.status_code, json.loads(row.attributes)


def by_jaeger(attributes: Mapping[str, Any]) -> Outcome:
    kinds = {bool: "bool", int: "int64", float: "float64"}
    tags = [
        {"key": name, "type": kinds.get(type(value), "string"), "value": value} for name, value in attributes.items()
    ]
    span = {"traceID": "1", "spanID": "2", "processID": "p1", "startTime": 1, "duration": 1, "tags": tags}
    (sent,) = read_jaeger_spans([{"spans": [span], "processes": {"p1": {"serviceName": "geo"}}}])
    return sent.row.status, sent.row.status_code, json.loads(sent.row.attributes)


def _by_rcabench(columns: Mapping[str, Any]) -> Outcome:
    plain = {"trace_id": "t", "span_id": "s", "parent_span_id": "", "service_name": "geo", "span_name": "call"}
    table = pa.table({name: [value] for name, value in {**plain, "duration": 1, **columns}.items()})
    table = table.append_column("time", pa.array([5], pa.timestamp("ns", "UTC")))
    (row,) = rcabench.span_rows([table], 0, 10).to_pylist()
    return row["status"], row["status_code"], json.loads(row["attributes"])


def by_rcabench_json(attributes: Mapping[str, Any]) -> Outcome:
    return _by_rcabench({"SpanAttributes": json.dumps(attributes)})


def by_rcabench_columns(attributes: Mapping[str, Any]) -> Outcome:
    return _by_rcabench({f"attr.{name}": value for name, value in attributes.items()})


READERS = (by_otlp, by_jaeger, by_rcabench_json, by_rcabench_columns)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("attributes", "status", "status_code", "failed"), CALLS)
def test_every_reader_sees_the_same_outcome_in_every_spelling(
    attributes: dict[str, Any],
    status: str,
    status_code: int | None,
    failed: bool,
    read: Callable[[Mapping[str, Any]], Outcome],
) -> None:
    own_status, code, kept = read(attributes)
    assert (own_status, code) == (status, status_code)
    assert (own_status == "error" or is_error_code(code or 0)) == failed
    assert (set(kept) == set(attributes)) == (status_code is None)


def test_the_seventeen_names_of_grpc_are_their_numbers() -> None:
    assert [parse_status_code(name) for name in GRPC_CODES] == list(range(17))
