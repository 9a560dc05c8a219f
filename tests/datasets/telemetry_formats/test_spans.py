"""Spans as the real exporter encodes them, read as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from faultset.datasets.telemetry_formats.spans import SpanRow, read_spans


def rows(
    work: Callable[[Tracer], None], resource: dict[str, str] | None = None
) -> tuple[list[SpanRow], Sequence[ReadableSpan]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource(resource or {"service.name": "geo", "k8s.pod.name": "geo-6d9c8b7f4-x2k4f"})
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    work(provider.get_tracer("test"))
    provider.shutdown()
    finished = exporter.get_finished_spans()
    return list(read_spans(encode_spans(finished).SerializeToString())), finished


def nested(tracer: Tracer) -> None:
    with tracer.start_as_current_span("GET /hotels", kind=SpanKind.SERVER) as server:
        server.set_attribute("http.status_code", 200)
        server.set_attribute("http.route", "/hotels")
        with tracer.start_as_current_span("/rate.Rate/GetRates", kind=SpanKind.CLIENT) as client:
            client.set_attributes({"peer.service": "rate", "tries": (1, 2), "share": float("inf"), "last": True})
            client.set_status(Status(StatusCode.ERROR, "refused"))


def test_a_span_becomes_a_row() -> None:
    (client, server), finished = rows(nested)
    assert server == SpanRow(
        start_ns=finished[1].start_time or 0,
        duration_ns=(finished[1].end_time or 0) - (finished[1].start_time or 0),
        trace_id=server.trace_id,
        span_id=server.span_id,
        parent_span_id=b"",
        reported_service="geo",
        pod="geo-6d9c8b7f4-x2k4f",
        peer_service=None,
        operation="GET /hotels",
        kind="server",
        status="unset",
        status_code=200,
        attributes='{"http.route":"/hotels"}',
    )
    assert client.trace_id.hex() == f"{finished[0].get_span_context().trace_id:032x}"  # pyright: ignore
    assert client.parent_span_id == server.span_id
    assert (client.kind, client.status, client.status_code, client.peer_service) == ("client", "error", None, "rate")
    assert client.attributes == ('{"last":true,"otel.status_description":"refused","share":"inf","tries":[1,2]}')


def test_a_process_without_a_pod_has_none() -> None:
    ((row, *_), _) = rows(nested, {"service.name": "load"})
    assert row.pod is None


def test_other_bytes_are_an_error() -> None:
    with pytest.raises(ValueError, match="not an OTLP trace export request"):
        read_spans(b"\xff\xff\xff")
