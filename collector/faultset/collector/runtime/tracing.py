"""Spans of a service: creation, propagation and encoding in OTLP."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes, AttributeValue

_SCOPE = "faultset"
_KINDS = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}
_HAS_REMOTE_FLAG, _IS_REMOTE_FLAG = 0x100, 0x200
_MAX_ATTRIBUTES = _MAX_EVENTS = 128
_INTEGER_LIMIT = 1 << 63


class RecordedSpan(Span):
    """A span that is passed to a function when it ends.

    Parameters
    ----------
    ended
        Called with the span at its end.
    """

    __slots__ = (
        "_ended",
        "attributes",
        "context",
        "end_ns",
        "events",
        "kind",
        "links",
        "name",
        "parent",
        "start_ns",
        "status",
    )

    def __init__(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        links: Sequence[Link],
        ended: Callable[[RecordedSpan], object],
    ):
        self.name, self.context, self.parent, self.kind = name, context, parent, kind
        self.attributes: dict[str, Any] = dict(attributes)
        self.links = list(links)
        self.events: list[tuple[str, int, Mapping[str, Any]]] = []
        self.status = _UNSET
        self.end_ns = 0
        self._ended = ended
        self.start_ns = time.time_ns()

    def end(self, end_time: int | None = None) -> None:
        """End the span; further calls do nothing."""
        if not self.end_ns:
            self.end_ns = end_time or time.time_ns()
            self._ended(self)

    def get_span_context(self) -> SpanContext:
        """Return the ids of the span."""
        return self.context

    def is_recording(self) -> bool:
        """Return whether the span has not ended."""
        return not self.end_ns

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set some attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set one attribute; ignore those beyond the limit of OpenTelemetry's SDK."""
        if not self.end_ns and (len(self.attributes) < _MAX_ATTRIBUTES or key in self.attributes):
            self.attributes[key] = value

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event; ignore those beyond the limit of OpenTelemetry's SDK."""
        if not self.end_ns and len(self.events) < _MAX_EVENTS:
            self.events.append((name, timestamp or time.time_ns(), dict(attributes or {})))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link."""
        self.links.append(Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Replace the name of the span."""
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status of the span, unless it is already OK."""
        if self.end_ns or self.status.status_code is StatusCode.OK:
            return
        self.status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an event about an exception."""
        details = {"exception.type": type(exception).__qualname__, "exception.message": str(exception)}
        self.add_event("exception", {**details, **(attributes or {})}, timestamp)


_UNSET = Status(StatusCode.UNSET)


class SpanEncoder:
    """Encodes spans of one process as OTLP requests.

    Parameters
    ----------
    resource
        Attributes of the process.
    """

    def __init__(self, resource: Mapping[str, str]):
        self._empty = ExportTraceServiceRequest()
        spans = self._empty.resource_spans.add()
        _add_attributes(spans.resource.attributes, resource)
        spans.scope_spans.add().scope.name = _SCOPE

    def encode(self, spans: Sequence[RecordedSpan]) -> bytes:
        """Return the body of an OTLP request with these spans, which have ended."""
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        encoded = request.resource_spans[0].scope_spans[0].spans
        for span in spans:
            _encode(span, encoded.add())
        return request.SerializeToString()


def _encode(span: RecordedSpan, message: Any) -> None:
    context, parent = span.context, span.parent
    message.trace_id = context.trace_id.to_bytes(16, "big")
    message.span_id = context.span_id.to_bytes(8, "big")
    if parent is not None:
        message.parent_span_id = parent.span_id.to_bytes(8, "big")
    message.flags = _build_flags(parent)
    message.name = span.name
    message.kind = _KINDS[span.kind]
    message.start_time_unix_nano, message.end_time_unix_nano = span.start_ns, span.end_ns
    if context.trace_state:
        message.trace_state = context.trace_state.to_header()
    _add_attributes(message.attributes, span.attributes)
    for name, time_ns, attributes in span.events:
        event = message.events.add()
        event.name, event.time_unix_nano = name, time_ns
        _add_attributes(event.attributes, attributes)
    for link in span.links:
        target = message.links.add()
        target.trace_id = link.context.trace_id.to_bytes(16, "big")
        target.span_id = link.context.span_id.to_bytes(8, "big")
        target.flags = _build_flags(link.context)
        _add_attributes(target.attributes, link.attributes or {})
    if span.status is not _UNSET:
        message.status.code = span.status.status_code.value
        if span.status.description:
            message.status.message = span.status.description


def _build_flags(other: SpanContext | None) -> int:
    """Return the OTLP flags that mark whether a parent or linked span is from another process."""
    return _HAS_REMOTE_FLAG | (_IS_REMOTE_FLAG if other is not None and other.is_remote else 0)


def _add_attributes(pairs: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        if value is None:
            continue
        pair: KeyValue = pairs.add()
        pair.key = key
        _set_value(pair.value, value)


def _set_value(message: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        # paths may contain lone surrogates, which protobuf does not accept
        message.string_value = value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        if -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            message.int_value = value
        else:
            message.string_value = str(value)
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, bytes):
        message.bytes_value = value
    else:
        message.array_value.SetInParent()
        for item in value:
            _set_value(message.array_value.values.add(), item)


_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""Header of version 00, the usual case; OpenTelemetry's propagator reads the others."""
NO_PARENT = Context()
"""Context without a span, which begins a new trace."""
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_TRACE_ID_LIMIT = 1 << 64


class SpanProcessor(Protocol):
    """Takes the spans of a process as they end."""

    def add(self, span: RecordedSpan) -> None: ...

    async def close(self) -> None:
        """Send the remaining spans within a short time."""


class Tracing:
    """Creates spans.

    Parameters
    ----------
    processor:
        Receives ended spans. Without one they are dropped, but their ids still appear in the log.
    sampling:
        Share of traces that are recorded; the root span decides for the whole trace.
    """

    def __init__(self, processor: SpanProcessor | None = None, *, sampling: float = 1.0):
        self._processor = processor
        self._ended = processor.add if processor else _drop
        self._sampled_below = round(sampling * _TRACE_ID_LIMIT)

    def _start(
        self,
        name: str,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: Mapping[str, Any],
        links: Sequence[Link] = (),
    ) -> Span:
        """Start a span; without a parent, the new trace id decides whether the trace is recorded."""
        span_id = random.getrandbits(64) or 1
        if parent is None:
            trace_id = random.getrandbits(128) or 1
            flags = _SAMPLED if trace_id % _TRACE_ID_LIMIT < self._sampled_below else _NOT_SAMPLED
            context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=flags)
        else:
            context = SpanContext(parent.trace_id, span_id, False, parent.trace_flags, parent.trace_state)
        if not context.trace_flags.sampled:
            return NonRecordingSpan(context)
        return RecordedSpan(name, context, parent, kind, attributes, links, self._ended)

    def server(self, name: str, headers: Mapping[str, str], attributes: dict[str, Any]) -> tuple[Span, Context]:
        """Start the span of an incoming request as a child of the span in its headers; return it with its context."""
        span = self._start(name, _read_parent(headers), SpanKind.SERVER, attributes)
        return span, build_trace_context(span)

    def client(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of an outgoing request."""
        return self._start(name, _get_parent(parent), SpanKind.CLIENT, attributes)

    def internal(self, name: str, parent: Context) -> Span:
        """Start the span of work inside an operation."""
        return self._start(name, _get_parent(parent), SpanKind.INTERNAL, {})

    def producer(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of a message that is published."""
        return self._start(name, _get_parent(parent), SpanKind.PRODUCER, attributes)

    def consumer(
        self, name: str, headers: Mapping[str, str], attributes: dict[str, Any], *, linked: bool
    ) -> tuple[Span, Context]:
        """Start the span of a message that is processed; return it with its context.

        Parameters
        ----------
        headers
            Headers of the message, which may name the publisher's span.
        linked
            Whether the span begins a new trace that links to the publisher's span, instead of being its child.
        """
        publisher = _read_parent(headers)
        links = [Link(publisher)] if linked and publisher is not None else []
        span = self._start(name, None if linked else publisher, SpanKind.CONSUMER, attributes, links)
        return span, build_trace_context(span)

    async def close(self) -> None:
        """Send the remaining spans within a short time."""
        if self._processor is not None:
            await self._processor.close()


def _drop(span: RecordedSpan) -> None:
    """Do nothing with a span."""


def _get_parent(context: Context) -> SpanContext | None:
    parent = trace.get_current_span(context).get_span_context()
    return parent if parent.is_valid else None


def _read_parent(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the span that headers name, or None."""
    header = headers.get("traceparent")
    if header is None:
        return None
    match = _TRACEPARENT.fullmatch(header) if "tracestate" not in headers else None
    if match is None:
        return _get_parent(_PROPAGATOR.extract(headers, NO_PARENT))
    trace_id, span_id, flags = (int(digits, 16) for digits in match.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def build_trace_context(span: Span) -> Context:
    """Return the context whose new spans are children of a span."""
    return trace.set_span_in_context(span, NO_PARENT)


def build_headers(span: Span) -> dict[str, str]:
    """Return the headers that pass a span on as the parent."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    headers = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if context.trace_state:
        headers["tracestate"] = context.trace_state.to_header()
    return headers


def get_span(context: Context) -> Span:
    """Return the span of a context; without one, a span that records nothing."""
    return trace.get_current_span(context)


def format_ids(span: Span) -> str:
    """Return the trace and span ids as fields of a log line."""
    context = span.get_span_context()
    return f"trace_id={context.trace_id:032x} span_id={context.span_id:016x}"


def fail(span: Span, message: str) -> None:
    """Mark a span as failed, with the reason in an event."""
    span.add_event("error", {"event": "error", "message": message})
    span.set_status(Status(StatusCode.ERROR, message))
