"""Spans of every source say in the same way how a call ended, whichever convention their program follows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from faultset.datasets.imports.formats import rcabench_files as rcabench
from faultset.datasets.status_codes import GRPC_CODES, is_error_code, parse_status_code
from faultset.datasets.telemetry_formats.spans import read_jaeger_spans, read_spans

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
