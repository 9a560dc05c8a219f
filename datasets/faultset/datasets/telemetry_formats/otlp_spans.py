"""Convert OTLP trace export requests (protobuf) to rows of the spans table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from faultset.core.files import canonical_json
from faultset.datasets.status_codes import read_outcome

SPAN_KINDS = ("internal", "internal", "server", "client", "producer", "consumer")
SPAN_STATUSES = ("unset", "ok", "error")

_LATEST_NS = 2**63 - 1


class SpanRow(NamedTuple):
    """A finished span; ids are bytes, `parent_span_id` is empty for a root, times are nanoseconds."""

    start_ns: int
    duration_ns: int
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    reported_service: str
    pod: str | None
    peer_service: str | None
    operation: str
    kind: str
    status: str
    status_code: int | None
    attributes: str


def read_spans(body: bytes) -> Iterator[SpanRow]:
    """Yield the spans of one export request, after decoding the whole body.

    Raises
    ------
    ValueError
        The body is not an export request.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(f"not an OTLP trace export request: {error}") from None
    return _read_rows(request)


def _read_rows(request: Any) -> Iterator[SpanRow]:
    for resource_spans in request.resource_spans:
        resource = _read_attributes(resource_spans.resource.attributes)
        service = str(resource.get("service.name", "unknown_service"))
        pod = resource.get("k8s.pod.name")
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                yield _build_row(span, service, None if pod is None else str(pod))


def _build_row(span: Any, service: str, pod: str | None) -> SpanRow:
    otlp_status = SPAN_STATUSES[span.status.code] if span.status.code < len(SPAN_STATUSES) else "unset"
    status, status_code, attributes = read_outcome(otlp_status, _read_attributes(span.attributes))
    start_ns = min(span.start_time_unix_nano, _LATEST_NS)
    peer = attributes.pop("peer.service", None)
    if span.status.message:
        attributes["otel.status_description"] = span.status.message
    if span.links:
        attributes["otel.links"] = [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links]
    return SpanRow(
        start_ns=start_ns,
        duration_ns=min(span.end_time_unix_nano, _LATEST_NS) - start_ns,
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        reported_service=service,
        pod=pod,
        peer_service=None if peer is None else str(peer),
        operation=span.name,
        kind=SPAN_KINDS[span.kind] if span.kind < len(SPAN_KINDS) else "internal",
        status=status,
        status_code=status_code,
        attributes=canonical_json(attributes),
    )


def _read_attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _read_value(pair.value) for pair in pairs}


def _read_value(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "bool_value":
            return value.bool_value
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
        case "array_value":
            return [_read_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _read_attributes(value.kvlist_value.values)
        case "bytes_value":
            return value.bytes_value.hex()
        case _:
            return None
