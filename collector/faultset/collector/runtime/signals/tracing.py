"""Spans of one process and the contexts that they hand on, as OpenTelemetry has them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from faultset.collector.runtime.signals.spans import RecordedSpan

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
        """Send what is left, for a short while at most."""


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
        """Send what is left, for a short while at most."""
        if self._processor is not None:
            await self._processor.close()


def _drop(span: RecordedSpan) -> None:
    """Take a span that nobody wants."""


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
