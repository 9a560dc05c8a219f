"""Spans."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags, TraceState

from faultset.collector.runtime.tracing import RecordedSpan, SpanEncoder, Tracing, build_headers, fail

CONTEXT = SpanContext(0xABC, 0xDEF, True, TraceFlags(1), TraceState([("a", "b")]))


def use(span: Span) -> None:
    """Do to a span what services do."""
    span.set_attributes({"text": "ä", "number": -3, "yes": True, "share": 0.5, "many": ["a", "b"]})
    span.set_attribute("text", "again")
    fail(span, "no luck")
    span.end()
    span.set_attribute("late", "never")
    span.end()


def without_chance(body: bytes) -> ExportTraceServiceRequest:
    """Return a request without random ids and times, and attributes by their names."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert 0 < span.start_time_unix_nano <= span.events[0].time_unix_nano <= span.end_time_unix_nano
                span.attributes.sort(key=lambda pair: pair.key)
                span.span_id = b""
                span.start_time_unix_nano = span.end_time_unix_nano = span.events[0].time_unix_nano = 0
    return request


def test_spans_are_encoded_as_the_sdk_encodes_them() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "geo", "k8s.pod.name": "geo-1"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    parent = trace.set_span_in_context(trace.NonRecordingSpan(CONTEXT))
    links = [Link(CONTEXT)]
    use(provider.get_tracer("faultset").start_span("/a", parent, SpanKind.CLIENT, {"peer.service": "x"}, links=links))
    theirs = encode_spans(kept.get_finished_spans()).SerializeToString()

    ended: list[RecordedSpan] = []
    own = SpanContext(CONTEXT.trace_id, 1, False, CONTEXT.trace_flags, CONTEXT.trace_state)
    use(RecordedSpan("/a", own, CONTEXT, SpanKind.CLIENT, {"peer.service": "x"}, links, ended.append))
    ours = SpanEncoder({"service.name": "geo", "k8s.pod.name": "geo-1"}).encode(ended)
    assert without_chance(ours) == without_chance(theirs)


def test_values_that_otlp_cannot_hold_are_told_otherwise_or_left_out() -> None:
    ended: list[RecordedSpan] = []
    given = {"large": 1 << 70, "nothing": None, "broken": "\udc80"}
    RecordedSpan("/", CONTEXT, None, SpanKind.SERVER, given, [], ended.append).end()
    request = ExportTraceServiceRequest.FromString(SpanEncoder({}).encode(ended))
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert {one.key: one.value.string_value for one in span.attributes} == {"large": str(1 << 70), "broken": "?"}


@pytest.mark.parametrize(("sampling", "kept"), [(1.0, 200), (0.0, 0)])
def test_the_root_decides_for_a_whole_trace_whether_it_is_kept(sampling: float, kept: int) -> None:
    tracing = Tracing(sampling=sampling)
    roots = [tracing.server("HTTP GET /hotels", {}, {}) for _ in range(200)]
    assert sum(span.is_recording() for span, _ in roots) == kept
    for root, context in roots:
        client = tracing.client("/geo.Geo/Nearby", context, {})
        server, _ = tracing.server("/geo.Geo/Nearby", build_headers(client), {})
        assert client.is_recording() == server.is_recording() == root.is_recording()


def test_a_share_of_traces_is_about_that_share() -> None:
    tracing = Tracing(sampling=0.25)
    kept = sum(tracing.server("HTTP GET /hotels", {}, {})[0].is_recording() for _ in range(2000))
    assert 400 < kept < 600
