"""Rows of the spans table from OTLP export requests (protobuf) and from Jaeger's JSON format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from faultset.core.files import canonical_json
from faultset.datasets.status_codes import read_outcome
from faultset.datasets.telemetry_formats.otlp_json import read_int

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
    """Yield the spans of one export request, after decoding the whole body; raise ValueError for another body."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise ValueError(f"not an OTLP trace export request: {error}") from None
    return _read_rows(request)


def _read_rows(request: Any) -> Iterator[SpanRow]:
    for resource_spans in request.resource_spans:
        resource = _decode_attributes(resource_spans.resource.attributes)
        service = str(resource.get("service.name", "unknown_service"))
        pod = resource.get("k8s.pod.name")
        for scope in resource_spans.scope_spans:
            for span in scope.spans:
                yield _build_row(span, service, None if pod is None else str(pod))


def _build_row(span: Any, service: str, pod: str | None) -> SpanRow:
    otlp_status = SPAN_STATUSES[span.status.code] if span.status.code < len(SPAN_STATUSES) else "unset"
    status, status_code, attributes = read_outcome(otlp_status, _decode_attributes(span.attributes))
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


def _decode_attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _decode_value(pair.value) for pair in pairs}


def _decode_value(value: Any) -> Any:
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
            return [_decode_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _decode_attributes(value.kvlist_value.values)
        case "bytes_value":
            return value.bytes_value.hex()
        case _:
            return None


_US = 1_000
_TRACE_BYTES, _SPAN_BYTES = 16, 8
_BOOKKEEPING = frozenset({
    "internal.span.format", "w3c.tracestate", "otel.scope.name", "otel.scope.version", "otel.library.name",
    "otel.library.version", "sampler.type", "sampler.param", "span.kind", "otel.status_code",
})  # fmt: skip
"""Tags that Jaeger and its clients add; spans received by OTLP do not have them."""
POD_TAGS = ("k8s.pod.name", "hostname", "host.name")
NAMESPACE_TAG = "k8s.namespace.name"


class ReceivedSpan(NamedTuple):
    """A span with the namespace and pod names that its process reports."""

    row: SpanRow
    namespace: str | None
    pods: tuple[str, ...]
    """Possible names of the pod, best first."""
    is_shifted: bool
    """Whether Jaeger has shifted its times to correct a clock."""


def read_jaeger_spans(traces: Iterable[Mapping[str, Any]]) -> Iterator[ReceivedSpan]:
    """Yield the spans of complete and incomplete traces in the order of the response."""
    for trace in traces:
        processes = {key: _Process.read(item) for key, item in (trace.get("processes") or {}).items()}
        for span in trace.get("spans") or ():
            process = processes.get(span.get("processID", "")) or _Process.read(span.get("process") or {})
            yield _read_span(span, process)


class _Process(NamedTuple):
    service: str
    namespace: str | None
    pods: tuple[str, ...]

    @classmethod
    def read(cls, process: Mapping[str, Any]) -> _Process:
        tags = read_tags(process.get("tags"))
        pods = tuple(dict.fromkeys(str(tags[name]) for name in POD_TAGS if tags.get(name)))
        namespace = tags.get(NAMESPACE_TAG)
        return cls(process.get("serviceName") or "unknown_service", None if namespace is None else str(namespace), pods)


class SpanFacts(NamedTuple):
    """Facts from the tags and references of a span."""

    parent_id: str
    kind: str
    status: str
    attributes: dict[str, Any]
    """Tags without those added by Jaeger and its clients."""
    is_shifted: bool


def read_span_facts(span: Mapping[str, Any]) -> SpanFacts:
    """Return the parent, kind, status and attributes of a span."""
    tags = read_tags(span.get("tags"))
    attributes = {name: value for name, value in tags.items() if name not in _BOOKKEEPING}
    status = {"ERROR": "error", "OK": "ok"}.get(str(tags.get("otel.status_code", "")).upper(), "unset")
    if status == "unset" and tags.get("error") in (True, "true"):
        status = "error"
    if status == "error" and attributes.get("error") in (True, "true"):
        del attributes["error"]
    kind = str(tags.get("span.kind", "internal")).lower()
    return SpanFacts(
        parent_id=_find_parent(span),
        kind=kind if kind in SPAN_KINDS else "internal",
        status=status,
        attributes=attributes,
        is_shifted=any("clock skew" in str(warning).lower() for warning in span.get("warnings") or ()),
    )


def _read_span(span: Mapping[str, Any], process: _Process) -> ReceivedSpan:
    facts = read_span_facts(span)
    peer = facts.attributes.pop("peer.service", None)
    status, status_code, attributes = read_outcome(facts.status, facts.attributes)
    row = SpanRow(
        start_ns=min(int(span["startTime"]) * _US, _LATEST_NS),
        duration_ns=int(span.get("duration", 0)) * _US,
        trace_id=_parse_id(span["traceID"], _TRACE_BYTES),
        span_id=_parse_id(span["spanID"], _SPAN_BYTES),
        parent_span_id=_parse_id(facts.parent_id, _SPAN_BYTES),
        reported_service=process.service,
        pod=process.pods[0] if process.pods else None,
        peer_service=None if peer is None else str(peer),
        operation=span.get("operationName", ""),
        kind=facts.kind,
        status=status,
        status_code=status_code,
        attributes=canonical_json(attributes),
    )
    return ReceivedSpan(row, process.namespace, process.pods, facts.is_shifted)


def _find_parent(span: Mapping[str, Any]) -> str:
    """Return the parent's id as Jaeger does: from a child-of reference, or else from a follows-from reference."""
    if span.get("parentSpanID"):
        return str(span["parentSpanID"])
    trace = span.get("traceID")
    references = [entry for entry in span.get("references") or () if entry.get("traceID", trace) == trace]
    for kind in ("CHILD_OF", "FOLLOWS_FROM"):
        for reference in references:
            if reference.get("refType") == kind:
                return str(reference["spanID"])
    return ""


def _parse_id(text: str, width: int) -> bytes:
    """Return the bytes of an id, whose leading zeros may be missing."""
    return bytes.fromhex(text.zfill(2 * width))[-width:] if text else b""


def read_tags(pairs: Iterable[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Return a list of typed tags as a mapping."""
    return {pair["key"]: _read_tag(pair) for pair in pairs or ()}


def _read_tag(pair: Mapping[str, Any]) -> Any:
    value, kind = pair.get("value"), pair.get("type")
    if kind == "int64" and isinstance(value, str):
        number = read_int(value)
        return number if number is not None and -(2**63) <= number < 2**63 else None
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
