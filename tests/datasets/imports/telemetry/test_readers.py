"""Each format becomes rows, or is refused in one sentence."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faultset.datasets.imports.telemetry.mapping import FileRule, TelemetryMapping
from faultset.datasets.imports.telemetry.rows import Redactor
from faultset.datasets.imports.telemetry.staging import FileFacts, list_inputs, stage_files

T = 1_760_000_000
NS = T * 10**9


def attributes(**facts: str) -> list[dict[str, Any]]:
    return [{"key": key.replace("_", "."), "value": {"stringValue": value}} for key, value in facts.items()]


RESOURCE = {"attributes": attributes(service_name="cart")}
SPAN = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "GET", "kind": 2, "startTimeUnixNano": str(NS)}
TRACES = {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": [SPAN]}]}]}
HISTOGRAM = {"timeUnixNano": str(NS), "count": "3", "sum": 5.0, "bucketCounts": ["1", "2"], "explicitBounds": [1.0]}
EXPONENTIAL = {
    "timeUnixNano": str(NS), "count": 3, "scale": 0, "zeroCount": 1, "positive": {"offset": 0, "bucketCounts": [2]},
}  # fmt: skip
METRICS = [
    {"name": "up", "gauge": {"dataPoints": [{"timeUnixNano": str(NS), "asInt": "1"}]}},
    {"name": "http.requests", "sum": {"isMonotonic": True, "dataPoints": [{"timeUnixNano": str(NS), "asDouble": 7}]}},
    {"name": "d", "unit": "s", "histogram": {"dataPoints": [HISTOGRAM]}},
    {"name": "e", "exponentialHistogram": {"dataPoints": [EXPONENTIAL]}},
]
JAEGER = {
    "traceID": "1",
    "processes": {"p1": {"serviceName": "cart"}},
    "spans": [
        {
            "traceID": "1",
            "spanID": "2",
            "operationName": "GET",
            "processID": "p1",
            "startTime": T * 10**6,
            "duration": 5,
        }
    ],
}
ZIPKIN = {"traceId": "1f", "id": "2f", "name": "get", "timestamp": T * 10**6, "localEndpoint": {"serviceName": "cart"}}
EVENT = {"reason": "BackOff", "type": "Warning", "involvedObject": {"kind": "Pod", "name": "cart-0"}, "message": "m"}
EVENT |= {"metadata": {"name": "e"}, "lastTimestamp": "2025-10-09T08:53:20Z"}
POD = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "cart-0", "creationTimestamp": "2025-10-09T08:53:20Z"}}
POD |= {"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
LOKI = {"status": "success", "data": {"resultType": "streams", "result": [
    {"stream": {"app": "cart"}, "values": [[str(NS), "level=error msg=boom"]]}
]}}  # fmt: skip
MATRIX = {"status": "success", "data": {"resultType": "matrix", "result": [
    {"metric": {"__name__": "up", "pod": "cart-0"}, "values": [[T, "1"], [T + 15, "NaN"], [T + 30, "2"]]}
]}}  # fmt: skip
NATIVE = {
    "metric": {"__name__": "d", "job": "cart"},
    "histogram": [T, {"count": "2", "sum": "3", "buckets": [[0, "1", "2", "2"]]}],
}
VECTOR = {"status": "success", "data": {"resultType": "vector", "result": [NATIVE]}}
DOCUMENT = {
    "_source": {"@timestamp": "2025-10-09T08:53:20.5Z", "message": "hi", "kubernetes": {"pod": {"name": "cart-0"}}}
}

READABLE: dict[str, tuple[str | bytes, str, int]] = {
    "OTLP lines": (json.dumps(TRACES) + "\n" + json.dumps(TRACES), "spans", 2),
    "OTLP document": (
        json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": METRICS}]}]}, indent=1), "metrics", 10),
    "Tempo": (json.dumps({"batches": TRACES["resourceSpans"]}), "spans", 1),
    "snake case": (json.dumps({"resource_logs": [{"scope_logs": [{"log_records": [
        {"time_unix_nano": str(NS), "body": {"string_value": "x"}}]}]}]}), "logs", 1),
    "Jaeger answer": (json.dumps({"data": [JAEGER]}), "spans", 1),
    "Jaeger trace": (json.dumps(JAEGER, indent=2), "spans", 1),
    "Zipkin": (json.dumps([[ZIPKIN]]), "spans", 1),
    "range": (json.dumps(MATRIX), "metrics", 2),
    "native histogram": (json.dumps(VECTOR), "metrics", 4),
    "exposition": (f'# TYPE r counter\nr_total{{job="cart"}} 5 {T}000\nr_total{{job="cart"}} 6 {T}500\n', "metrics", 2),
    "OpenMetrics": (f'# TYPE r counter\nr_total{{a="}}b"}} 5 {T}.5 # {{t="1"}} 2 {T}\n# EOF\n', "metrics", 1),
    "Loki": (json.dumps(LOKI), "logs", 1),
    "CRI": (
        "2025-10-09T08:53:20.1Z stdout P Trace\n2025-10-09T08:53:20.2Z stdout F back\n"
        "2025-10-09T08:53:20.3Z stdout F   at x\n2025-10-09T08:53:21Z stderr F b\n", "logs", 2),
    "Docker": ('{"log":"a\\n","stream":"stdout","time":"2025-10-09T08:53:20.1Z"}\n', "logs", 1),
    "JSON log": ('{"ts": 1760000000.5, "level": "warn", "msg": "slow", "trace_id": "' + "ab" * 16 + '"}\n', "logs", 1),
    "text log": ("2025-10-09 08:53:20,123 ERROR a\n  continued\n2025-10-09 08:53:21,123 INFO b\n", "logs", 2),
    "coloured log": (
        "\x1b[1;31m2025-10-09T08:53:20Z\x1b[0m \x1b[1;31mERROR\x1b[0m \x1b]0;title\x07refused\n" * 2, "logs", 2),
    "access log": ('1.2.3.4 - - [09/Oct/2025:08:53:20 +0000] "GET / HTTP/1.1" 200 1\n', "logs", 1),
    "documents": (json.dumps({"hits": {"hits": [DOCUMENT]}}), "logs", 1),
    "events": (json.dumps({"kind": "EventList", "items": [EVENT]}), "events", 1),
    "watch": (json.dumps({"type": "ADDED", "object": {**EVENT, "kind": "Event"}}), "events", 1),
    "objects": (json.dumps({"kind": "List", "items": [POD]}), "objects", 1),
    "long CSV": (f"timestamp,cmdb_id,kpi_name,value\n{T},cart,cpu,1\n{T},cart,cpu\n{T + 1},cart,cpu,2\n", "metrics", 2),
    "wide CSV": (f"time;cart/cpu;cart/note\n{T};1;x\n{T + 1};;y\n", "metrics", 1),
    "span CSV": (f"trace_id,span_id,operation,service,startTime,duration\nab,cd,GET,cart,{T}000000,9\n", "spans", 1),
    "gzip": (gzip.compress(json.dumps(TRACES).encode()), "spans", 1),
    "zstd": (pa.compress(json.dumps(TRACES).encode(), codec="zstd", asbytes=True), "spans", 1),
    "UTF-16": (json.dumps(MATRIX).encode("utf-16"), "metrics", 2),
    "cut document": (json.dumps({"data": [JAEGER, JAEGER]}, indent=1)[:-120], "spans", 1),
    "cut gzip": (gzip.compress((json.dumps(TRACES) + "\n").encode() * 9_000)[:-300], "spans", -1),
}  # fmt: skip
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "is empty; leave it out"),
    "blank": (" \n\t\n", "is empty; leave it out"),
    "cut": ('{"resourceSpans":[{"resource', "is not complete JSON"),
    "no time": ('{"log":"a\\n"}\n', "has no time"),
    "1970": (json.dumps({"data": [{**JAEGER, "spans": [{**JAEGER["spans"][0], "startTime": 5}]}]}), "before 2000"),
    "error answer": ('{"status":"error","error":"too many points"}', "too many points"),
    "aggregations": ('{"aggregations": {}}', "aggregations"),
    "Tempo search": ('{"traces": [{"traceID": "1", "rootTraceName": "x"}]}', "save each trace by its id"),
    "kubectl top": ("NAME   CPU(cores)   MEMORY(bytes)\na  1m  2Mi\n", "no times"),
    "StatsD": ("a.b:5|c|#x:y\n", "StatsD"),
    "scrape": ("# TYPE up gauge\nup 1\n", "the mapping file can name its time"),
    "prose": ("hello\nworld\n", "pattern in the mapping file"),
    "binary": (b"\x00\x01\x02" * 50, "binary data of an unknown format"),
    "damaged gzip": (b"\x1f\x8b" + b"x" * 50, "damaged"),
    "image": (b"\x89PNG\r\n", "is an image"),
    "unknown table": ("a,b\n1,2\n", "name them in the mapping file"),
    "wrong types": (json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [7]}]}]}), "not objects"),
    "deep": ("[" * 100_000, "is not complete JSON"),
    "deep objects": ('{"a":' * 50_000, "is not complete JSON"),
}


def read(tmp_path: Path, content: str | bytes, name: str = "file", **rule: Any) -> FileFacts:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    mapping = TelemetryMapping(files=(FileRule(match="*", **rule),) if rule else ())
    (facts,) = stage_files(list_inputs([file]), tmp_path / "stage", mapping, Redactor)
    return facts


def rows(tmp_path: Path, facts: FileFacts, table: str) -> list[dict[str, Any]]:
    return pq.read_table(tmp_path / "stage" / facts.folder / f"{table}.parquet").to_pylist()


@pytest.mark.parametrize("name", READABLE)
def test_a_format_becomes_rows(name: str, tmp_path: Path) -> None:
    content, table, count = READABLE[name]
    facts = read(tmp_path, content)
    assert not facts.refusal
    assert facts.rows[table] == count or (count < 0 and facts.rows[table] > 1_000)
    times = [row["time"] for row in rows(tmp_path, facts, table)]
    assert all(NS <= time < NS + 40 * 10**9 for time in times)


@pytest.mark.parametrize("name", REFUSED)
def test_other_content_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    content, reason = REFUSED[name]
    facts = read(tmp_path, content)
    assert reason in facts.refusal
    assert facts.refusal.startswith("file ")
    assert not facts.rows


def test_protobuf_of_otlp_is_read_plain_and_with_lengths(tmp_path: Path) -> None:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    span = SPAN | {"traceId": "q6urq6urq6urq6urq6urqw==", "spanId": "zc3Nzc3Nzc0="}
    data = {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": [span]}]}]}
    body = ParseDict(data, TracesData()).SerializeToString()
    for name, content in (("plain", body), ("prefixed", (struct.pack(">I", len(body)) + body) * 2)):
        facts = read(tmp_path, content, name)
        assert facts.format == "OTLP protobuf", facts.refusal
        assert {row["trace_id"] for row in rows(tmp_path, facts, "spans")} == {"ab" * 16}


def test_remote_write_is_read_with_and_without_snappy(tmp_path: Path) -> None:
    from faultset.datasets.imports.telemetry.readers.prometheus import _build_request_class

    request = _build_request_class()()
    series = request.timeseries.add()
    series.labels.add(name="__name__", value="up")
    series.labels.add(name="job", value="shop/cart")
    series.samples.add(value=1.5, timestamp=T * 1000)
    body = request.SerializeToString()
    for name, content in (("plain", body), ("snappy", pa.compress(body, codec="snappy", asbytes=True))):
        facts = read(tmp_path, content, name)
        (row,) = rows(tmp_path, facts, "metrics")
        assert (row["value"], row["time"], json.loads(row["origin"])) == (1.5, NS, {"service": "cart"})


def test_histograms_become_cumulative_buckets(tmp_path: Path) -> None:
    facts = read(tmp_path, json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": METRICS[2:]}]}]}))
    values = {
        (row["metric"], json.loads(row["labels"]).get("le")): (row["value"], row["kind"])
        for row in rows(tmp_path, facts, "metrics")
    }
    assert values["d_seconds_bucket", "1.0"] == (1.0, "bucket")
    assert values["d_seconds_bucket", "+Inf"] == (3.0, "bucket")
    assert values["d_seconds_sum", None] == (5.0, "sum")
    assert values["e_bucket", "0.0"][0] == 1.0
    assert values["e_bucket", "2.0"][0] == 3.0


def test_records_of_a_stack_trace_are_one_and_levels_and_ids_are_parsed(tmp_path: Path) -> None:
    (cri, _) = rows(tmp_path, read(tmp_path, READABLE["CRI"][0], "cri"), "logs")
    assert cri["message"] == "Traceback\n  at x"
    (log,) = rows(tmp_path, read(tmp_path, READABLE["JSON log"][0], "json"), "logs")
    assert (log["level"], log["message"], log["trace_id"]) == ("warning", "slow", "ab" * 16)


def test_a_rule_of_the_mapping_reads_what_does_not_describe_itself(tmp_path: Path) -> None:
    line = "09.10.2025|cart|oops\n"
    pattern = r"^(?P<time>\d+)\|(?P<service>\w+)\|(?P<message>.*)$"
    facts = read(tmp_path, f"{T}|cart|oops\n{line}", "log", pattern=pattern)
    assert facts.rows == {"logs": 1}
    assert facts.dropped == {"does not match the pattern of the mapping file": 1}
    scrape = read(tmp_path, "# TYPE up gauge\nup 1\n", "scrape", time="2025-10-09T08:53:20Z", service="cart")
    assert rows(tmp_path, scrape, "metrics")[0]["time"] == NS
    local = read(tmp_path, "2025-10-09 10:53:20 a\n", "local", time_zone="Europe/Berlin")
    assert rows(tmp_path, local, "logs")[0]["time"] == NS


def test_bytes_that_are_not_text_and_long_lines_are_counted(tmp_path: Path) -> None:
    content = b"2025-10-09T08:53:20Z caf\xe9 " + b"x" * 2_000_000 + b"\n"
    facts = read(tmp_path, content)
    assert facts.rows == {"logs": 1}
    assert list(facts.notes) == ["the line holds bytes that are not UTF-8, which became U+FFFD"]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("login password=hunter2 ok", "hunter2"),
        ('{"api_key": "abc123def"}', "abc123def"),
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("postgres://shop:s3cret@db/x", "s3cret"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.sig", "eyJzdWIiOiIx"),
        ("key AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
    ],
)
def test_secrets_are_hidden_unless_that_is_switched_off(text: str, secret: str) -> None:
    assert secret not in Redactor().hide(text)
    assert Redactor(enabled=False).hide(text) == text
    assert Redactor(patterns=["ok"]).hide("ok") == "<redacted>"


def test_a_staged_file_is_not_read_again(tmp_path: Path) -> None:
    first = read(tmp_path, json.dumps(TRACES))
    kept = tmp_path / "stage" / first.folder / "spans.parquet"
    kept.write_bytes(b"kept")
    (facts,) = stage_files(list_inputs([tmp_path / "file"]), tmp_path / "stage", TelemetryMapping(), Redactor)
    assert (facts.rows, kept.read_bytes()) == (first.rows, b"kept")


def test_a_damaged_archive_does_not_end_the_import_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TRACES))
    (tmp_path / "b.tar").write_bytes(b"x" * 512)
    first, second = stage_files(list_inputs([tmp_path]), tmp_path / "stage", TelemetryMapping(), Redactor)
    assert first.rows == {"spans": 1}
    assert "b.tar cannot be unpacked" in second.refusal


def test_a_copy_of_a_file_is_read_once(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(TRACES))
    first, second = stage_files(
        list_inputs([tmp_path / "a.json", tmp_path / "b.json"]), tmp_path / "stage", TelemetryMapping(), Redactor
    )
    assert first.rows == {"spans": 1}
    assert second.refusal == "b.json has the same content as a.json"
