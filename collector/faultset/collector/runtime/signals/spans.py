"""Spans as OpenTelemetry's interface has them, kept as they are until many are encoded together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
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
