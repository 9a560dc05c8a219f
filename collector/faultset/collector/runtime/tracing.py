"""Spans of a service: how they begin and end, their bytes in OTLP, and how they are sent."""

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
_MOST_ATTRIBUTES = _MOST_EVENTS = 128
_INTEGERS = 1 << 63


class RecordedSpan(Span):
    """A span that is handed over when it ends.

    Parameters
    ----------
    ended
        Takes the span.
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
        """End it, once."""
        if not self.end_ns:
            self.end_ns = end_time or time.time_ns()
            self._ended(self)

    def get_span_context(self) -> SpanContext:
        """Return its ids."""
        return self.context

    def is_recording(self) -> bool:
        """Say whether it has not ended."""
        return not self.end_ns

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set some attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Set one attribute; those beyond the limit of OpenTelemetry's SDK are left out."""
        if not self.end_ns and (len(self.attributes) < _MOST_ATTRIBUTES or key in self.attributes):
            self.attributes[key] = value

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event; of more than OpenTelemetry's SDK keeps, the first ones."""
        if not self.end_ns and len(self.events) < _MOST_EVENTS:
            self.events.append((name, timestamp or time.time_ns(), dict(attributes or {})))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Add a link."""
        self.links.append(Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Replace its name."""
        self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set its status; one that is OK stays."""
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
        told = {"exception.type": type(exception).__qualname__, "exception.message": str(exception)}
        self.add_event("exception", {**told, **(attributes or {})}, timestamp)


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
        """Return the body of a request with spans that have ended."""
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        encoded = request.resource_spans[0].scope_spans[0].spans
        for span in spans:
            _encode(span, encoded.add())
        return request.SerializeToString()


def _encode(span: RecordedSpan, into: Any) -> None:
    context, parent = span.context, span.parent
    into.trace_id = context.trace_id.to_bytes(16, "big")
    into.span_id = context.span_id.to_bytes(8, "big")
    if parent is not None:
        into.parent_span_id = parent.span_id.to_bytes(8, "big")
    into.flags = _flags(parent)
    into.name = span.name
    into.kind = _KINDS[span.kind]
    into.start_time_unix_nano, into.end_time_unix_nano = span.start_ns, span.end_ns
    if context.trace_state:
        into.trace_state = context.trace_state.to_header()
    _add_attributes(into.attributes, span.attributes)
    for name, time_ns, attributes in span.events:
        event = into.events.add()
        event.name, event.time_unix_nano = name, time_ns
        _add_attributes(event.attributes, attributes)
    for link in span.links:
        made = into.links.add()
        made.trace_id = link.context.trace_id.to_bytes(16, "big")
        made.span_id = link.context.span_id.to_bytes(8, "big")
        made.flags = _flags(link.context)
        _add_attributes(made.attributes, link.attributes or {})
    if span.status is not _UNSET:
        into.status.code = span.status.status_code.value
        if span.status.description:
            into.status.message = span.status.description


def _flags(other: SpanContext | None) -> int:
    """Return the flags that say whether another span, if there is one, is of another process."""
    return _HAS_REMOTE_FLAG | (_IS_REMOTE_FLAG if other is not None and other.is_remote else 0)


def _add_attributes(pairs: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        if value is None:
            continue
        pair: KeyValue = pairs.add()
        pair.key = key
        _set(pair.value, value)


def _set(into: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        # a lone surrogate, which a path may have, is no text of protobuf
        into.string_value = value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    elif isinstance(value, bool):
        into.bool_value = value
    elif isinstance(value, int):
        if -_INTEGERS <= value < _INTEGERS:
            into.int_value = value
        else:
            into.string_value = str(value)
    elif isinstance(value, float):
        into.double_value = value
    elif isinstance(value, bytes):
        into.bytes_value = value
    else:
        into.array_value.SetInParent()
        for one in value:
            _set(into.array_value.values.add(), one)


_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""The header as our own programs send it; whatever else it may be is left to the propagator."""
NO_PARENT = Context()
"""Context under which a trace begins."""
_SAMPLED, _NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)
_TRACE_ID_LIMIT = 1 << 64


class SpanProcessor(Protocol):
    """Takes the spans of a process as they end."""

    def add(self, span: RecordedSpan) -> None: ...

    async def close(self) -> None:
        """Send the remaining spans within a short time."""


class Tracing:
    """Makes spans.

    Parameters
    ----------
    processor:
        Takes those that have ended; without one, spans are made (their ids are in the log) and dropped.
    sampling:
        Share of traces that are kept; the root decides for the whole trace.
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
        """Start a span; one without a parent decides whether its trace is kept, by the trace's id."""
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
        """Start the span of an incoming request, under the caller's if it says so, and its context."""
        span = self._start(name, _told(headers), SpanKind.SERVER, attributes)
        return span, context_of(span)

    def client(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of an outgoing request."""
        return self._start(name, _parent(parent), SpanKind.CLIENT, attributes)

    def internal(self, name: str, parent: Context) -> Span:
        """Start the span of a part of an operation."""
        return self._start(name, _parent(parent), SpanKind.INTERNAL, {})

    def producer(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of a message that is published."""
        return self._start(name, _parent(parent), SpanKind.PRODUCER, attributes)

    def consumer(
        self, name: str, headers: Mapping[str, str], attributes: dict[str, Any], *, linked: bool
    ) -> tuple[Span, Context]:
        """Start the span of a message that is processed, and its context.

        Parameters
        ----------
        headers
            Those that came with the message; they name the publisher's span, if it had one.
        linked
            Whether the span begins a trace with a link to the publisher's, rather than being a child of it.
        """
        sent = _told(headers)
        links = [Link(sent)] if linked and sent is not None else []
        span = self._start(name, None if linked else sent, SpanKind.CONSUMER, attributes, links)
        return span, context_of(span)

    async def close(self) -> None:
        """Send the remaining spans within a short time."""
        if self._processor is not None:
            await self._processor.close()


def _drop(span: RecordedSpan) -> None:
    """Drop a span."""


def _parent(context: Context) -> SpanContext | None:
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _told(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the span that headers name, if they do."""
    told = headers.get("traceparent")
    if told is None:
        return None
    found = _TRACEPARENT.fullmatch(told) if "tracestate" not in headers else None
    if found is None:
        return _parent(_PROPAGATOR.extract(headers, NO_PARENT))
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None


def context_of(span: Span) -> Context:
    """Return the context under which spans are children of a span."""
    return trace.set_span_in_context(span, NO_PARENT)


def headers_of(span: Span) -> dict[str, str]:
    """Return the headers that hand a span on as parent."""
    context = span.get_span_context()
    if not context.is_valid:
        return {}
    headers = {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if context.trace_state:
        headers["tracestate"] = context.trace_state.to_header()
    return headers


def span_of(context: Context) -> Span:
    """Return the span of a context; one that records nothing when it has none."""
    return trace.get_current_span(context)


def ids_of(span: Span) -> str:
    """Return trace and span id as fields of a log line."""
    context = span.get_span_context()
    return f"trace_id={context.trace_id:032x} span_id={context.span_id:016x}"


def fail(span: Span, message: str) -> None:
    """Mark a span as failed, with an event that says why."""
    span.add_event("error", {"event": "error", "message": message})
    span.set_status(Status(StatusCode.ERROR, message))
