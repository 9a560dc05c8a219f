"""Spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from span_receiver import Receiver

from faultset.collector.runtime.http import tracing as tracing_module
from faultset.collector.runtime.http.tracing import (
    Span,
    SpanEncoder,
    SpanSender,
    Tracing,
    build_headers,
    format_ids,
    pod_resource,
)

REMOTE = SpanContext(0xABC, 0xDEF, True, TraceFlags(1), TraceState([("a", "b")]))
ATTRIBUTES = {"text": "ä", "number": -3, "yes": True, "share": 0.5, "many": ["a", "b"]}
PARENT = "00-00000000000000000000000000000abc-0000000000000def-01"


def without_chance(body: bytes) -> ExportTraceServiceRequest:
    """Return a request without random ids and times, and attributes by their names."""
    request = ExportTraceServiceRequest.FromString(body)
    for span in (span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans):
        assert 0 < span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
        span.attributes.sort(key=lambda pair: pair.key)
        span.span_id = b""
        span.start_time_unix_nano = span.end_time_unix_nano = span.events[0].time_unix_nano = 0
    return request


def test_spans_are_encoded_as_the_sdk_encodes_them() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "geo", "k8s.pod.name": "geo-1"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    parent = trace.set_span_in_context(trace.NonRecordingSpan(REMOTE))
    theirs = provider.get_tracer("faultset").start_span(
        "/a", parent, SpanKind.CLIENT, {"peer.service": "x"}, links=[Link(REMOTE)]
    )
    theirs.set_attributes(ATTRIBUTES)
    theirs.add_event("error", {"event": "error", "message": "no luck"})
    theirs.set_status(Status(StatusCode.ERROR, "no luck"))
    theirs.end()

    ended: list[Span] = []
    remote = Span(0xABC, 0xDEF, 1, "a=b", is_remote=True)
    ours = Span(
        0xABC, 1, 1, "a=b", name="/a", kind=3, parent=remote, link=remote, attributes={"peer.service": "x"},
        ended=ended.append,
    )  # fmt: skip
    ours.set_attributes(ATTRIBUTES)
    ours.fail("no luck")
    ours.end()
    ours.set_attributes({"late": "never"})
    ours.end()
    body = SpanEncoder({"service.name": "geo", "k8s.pod.name": "geo-1"}).encode(ended)
    expected = encode_spans(exporter.get_finished_spans()).SerializeToString()
    assert without_chance(body) == without_chance(expected)


def test_values_that_otlp_cannot_hold_are_converted_or_left_out() -> None:
    ended: list[Span] = []
    attributes = {"large": 1 << 70, "nothing": None, "broken": "\udc80"}
    Span(1, 2, 1, attributes=attributes, ended=ended.append).end()
    request = ExportTraceServiceRequest.FromString(SpanEncoder({}).encode(ended))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert {pair.key: pair.value.string_value for pair in span.attributes} == {"large": str(1 << 70), "broken": "?"}


@pytest.mark.parametrize(("sampling", "low", "high"), [(1.0, 2000, 2000), (0.0, 0, 0), (0.25, 400, 600)])
def test_the_root_decides_whether_a_trace_is_recorded(sampling: float, low: int, high: int) -> None:
    tracing = Tracing(sampling=sampling)
    roots = [tracing.server("HTTP GET /hotels", {}, {}) for _ in range(2000)]
    assert low <= sum(root.ended is not None for root in roots) <= high
    for root in roots[:100]:
        client = tracing.client("/geo.Geo/Nearby", root, {})
        server = tracing.server("/geo.Geo/Nearby", build_headers(client), {})
        assert {span.ended is None for span in (client, server)} == {root.ended is None}


@pytest.mark.parametrize(
    ("header", "is_valid"),
    [
        (PARENT, True),
        (f" 01{PARENT[2:]}-later", True),
        (f"{PARENT}-later", False),
        (f"ff{PARENT[2:]}", False),
        (PARENT.replace("def", "000"), False),
        (PARENT.upper(), False),
        ("", False),
    ],
)
def test_a_valid_header_names_the_parent(header: str, is_valid: bool) -> None:
    span = Tracing().server("/", {"traceparent": header, "tracestate": "a=b,c=d"}, {})
    assert (span.trace_id == 0xABC, span.parent_id, span.trace_state) == (
        (True, 0xDEF, "a=b,c=d") if is_valid else (False, None, "")
    )
    assert build_headers(span).get("tracestate", "") == span.trace_state


def test_logs_have_ids_or_zeros() -> None:
    assert format_ids(Span(10, 11, 1)) == f"trace_id={10:032x} span_id={11:016x}"
    assert format_ids(None) == f"trace_id={0:032x} span_id={0:016x}"


def send(endpoint: str, work: Callable[[Tracing], Any]) -> None:
    """Create spans in a process that then ends."""

    async def run() -> None:
        tracing = Tracing(SpanSender(pod_resource("geo", "geo-1"), endpoint, "127.0.0.9"))
        work(tracing)
        await tracing.close()

    asyncio.run(run())


def test_a_process_that_ends_sends_its_last_spans_from_its_own_address() -> None:
    receiver = Receiver()
    try:
        send(receiver.endpoint, lambda tracing: [tracing.server(f"/{n}", {}, {}).end() for n in range(2500)])
    finally:
        receiver.close()
    assert sorted(int(span.name[1:]) for span in receiver.spans) == list(range(2500))
    assert {(span.peer, span.service, span.pod) for span in receiver.spans} == {("127.0.0.9", "geo", "geo-1")}


def test_a_receiver_that_does_not_listen_delays_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_module, "_SEND_TIMEOUT_S", 0.1)
    send("http://127.0.0.1:9", lambda tracing: tracing.server("/", {}, {}).end())
