"""Spans of a service: creation, propagation, encoding in OTLP, and sending in the background."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient, Names, host_and_port

_KINDS, _ERROR = trace_pb2.Span, trace_pb2.Status.STATUS_CODE_ERROR
_HAS_REMOTE_FLAG, _IS_REMOTE_FLAG = 0x100, 0x200
_SAMPLED = 1
_MAX_ATTRIBUTES = 128
_INTEGER_LIMIT = 1 << 63
_TRACE_ID_LIMIT = 1 << 64
_TRACEPARENT = re.compile("([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")

_SEND_PAUSE_S = 1.0
_MAX_BUFFERED_SPANS = 8192
_BATCH_SPANS = 1024
_SEND_TIMEOUT_S = 2.0
_RETRY_PAUSE_S = 0.5
_FLUSH_S = 3.0
_CONNECTION_AGE_S = 60.0


class Span:
    """A span, which is passed to `ended` at its end; without `ended` it only has ids, for its children and for logs."""

    __slots__ = (
        "attributes", "end_ns", "ended", "error", "events", "flags", "is_remote", "kind", "link", "name", "parent_id",
        "parent_is_remote", "span_id", "start_ns", "trace_id", "trace_state",
    )  # fmt: skip

    def __init__(
        self,
        trace_id: int,
        span_id: int,
        flags: int,
        trace_state: str = "",
        *,
        is_remote: bool = False,
        name: str = "",
        kind: Any = 0,
        parent: Span | None = None,
        link: Span | None = None,
        attributes: Mapping[str, Any] | None = None,
        ended: Callable[[Span], object] | None = None,
    ):
        self.trace_id, self.span_id, self.flags, self.trace_state = trace_id, span_id, flags, trace_state
        self.is_remote, self.name, self.kind, self.link, self.ended = is_remote, name, kind, link, ended
        self.parent_id = None if parent is None else parent.span_id
        self.parent_is_remote = parent is not None and parent.is_remote
        self.attributes: dict[str, Any] = dict(attributes or {})
        self.events: list[tuple[str, int, Mapping[str, Any]]] = []
        self.error: str | None = None
        self.start_ns, self.end_ns = time.time_ns(), 0

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes; ignore those beyond the limit of OpenTelemetry's SDK."""
        if self.ended is not None:
            for key, value in attributes.items():
                if len(self.attributes) < _MAX_ATTRIBUTES or key in self.attributes:
                    self.attributes[key] = value

    def fail(self, message: str | None = None) -> None:
        """Mark the span as failed, with the reason, if any, in an event."""
        if self.ended is not None:
            self.error = message or ""
            if message is not None:
                self.events.append(("error", time.time_ns(), {"event": "error", "message": message}))

    def end(self) -> None:
        """End the span; further calls do nothing."""
        if self.ended is not None:
            self.end_ns, ended, self.ended = time.time_ns(), self.ended, None
            ended(self)


class Tracing:
    """Creates spans.

    Parameters
    ----------
    sender
        Receives ended spans. Without one they are dropped, but their ids still appear in the log.
    sampling
        Share of traces that are recorded; the root span decides for the whole trace.
    """

    def __init__(self, sender: SpanSender | None = None, *, sampling: float = 1.0):
        self._sender = sender
        self._ended = sender.add if sender else lambda span: None
        self._sampled_below = round(sampling * _TRACE_ID_LIMIT)

    def _start_span(
        self, name: str, parent: Span | None, kind: Any, attributes: Mapping[str, Any], link: Span | None = None
    ) -> Span:
        span_id = random.getrandbits(64) or 1
        if parent is None:
            trace_id = random.getrandbits(128) or 1
            flags, state = int(trace_id % _TRACE_ID_LIMIT < self._sampled_below), ""
        else:
            trace_id, flags, state = parent.trace_id, parent.flags, parent.trace_state
        if not flags & _SAMPLED:
            return Span(trace_id, span_id, flags, state)
        return Span(
            trace_id, span_id, flags, state, name=name, kind=kind, parent=parent, link=link, attributes=attributes,
            ended=self._ended,
        )  # fmt: skip

    def server(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Any]) -> Span:
        """Start the span of an incoming request as a child of the span in its headers."""
        return self._start_span(name, _read_parent(headers), _KINDS.SPAN_KIND_SERVER, attributes)

    def client(self, name: str, parent: Span | None, attributes: Mapping[str, Any]) -> Span:
        return self._start_span(name, parent, _KINDS.SPAN_KIND_CLIENT, attributes)

    def internal(self, name: str, parent: Span | None) -> Span:
        return self._start_span(name, parent, _KINDS.SPAN_KIND_INTERNAL, {})

    def producer(self, name: str, parent: Span | None, attributes: Mapping[str, Any]) -> Span:
        return self._start_span(name, parent, _KINDS.SPAN_KIND_PRODUCER, attributes)

    def consumer(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, Any], *, linked: bool) -> Span:
        """Start the span of a message that is processed.

        If `linked`, the span begins a new trace with a link to the publisher's span, instead of being its child.
        """
        publisher = _read_parent(headers)
        parent, link = (None, publisher) if linked else (publisher, None)
        return self._start_span(name, parent, _KINDS.SPAN_KIND_CONSUMER, attributes, link)

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()


def _read_parent(headers: Mapping[str, str]) -> Span | None:
    """Return the span that headers name in the format of W3C's Trace Context; None without a valid one."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip(" \t"))
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    trace_id, span_id, flags = (int(digits, 16) for digits in match.group(2, 3, 4))
    return (
        Span(trace_id, span_id, flags, headers.get("tracestate", ""), is_remote=True) if trace_id and span_id else None
    )


def build_headers(span: Span | None) -> dict[str, str]:
    """Return the headers that pass a span on as the parent."""
    if span is None:
        return {}
    headers = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.flags:02x}"}
    if span.trace_state:
        headers["tracestate"] = span.trace_state
    return headers


def format_ids(span: Span | None) -> str:
    """Return the trace and span ids as fields of a log line; zeros without a span."""
    trace_id, span_id = (0, 0) if span is None else (span.trace_id, span.span_id)
    return f"trace_id={trace_id:032x} span_id={span_id:016x}"


def pod_resource(service: str, pod: str, namespace: str | None = None) -> dict[str, str]:
    location = {"k8s.namespace.name": namespace} if namespace else {}
    return {"service.name": service, "k8s.pod.name": pod, **location}


class SpanEncoder:
    """Encodes spans of one process, which has the attributes `resource`, as OTLP requests."""

    def __init__(self, resource: Mapping[str, str]):
        self._empty = ExportTraceServiceRequest()
        spans = self._empty.resource_spans.add()
        _add_attributes(spans.resource.attributes, resource)
        spans.scope_spans.add().scope.name = "faultset"

    def encode(self, spans: Sequence[Span]) -> bytes:
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        encoded = request.resource_spans[0].scope_spans[0].spans
        for span in spans:
            _encode_span(span, encoded.add())
        return request.SerializeToString()


def _encode_span(span: Span, message: trace_pb2.Span) -> None:
    message.trace_id, message.span_id = span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")
    if span.parent_id is not None:
        message.parent_span_id = span.parent_id.to_bytes(8, "big")
    message.flags = _HAS_REMOTE_FLAG | _IS_REMOTE_FLAG * span.parent_is_remote
    message.name, message.trace_state = span.name, span.trace_state
    message.kind = span.kind
    message.start_time_unix_nano, message.end_time_unix_nano = span.start_ns, span.end_ns
    _add_attributes(message.attributes, span.attributes)
    for name, time_ns, attributes in span.events:
        event = message.events.add(name=name, time_unix_nano=time_ns)
        _add_attributes(event.attributes, attributes)
    if (link := span.link) is not None:
        message.links.add(
            trace_id=link.trace_id.to_bytes(16, "big"),
            span_id=link.span_id.to_bytes(8, "big"),
            flags=_HAS_REMOTE_FLAG | _IS_REMOTE_FLAG * link.is_remote,
        )
    if span.error is not None:
        message.status.code = _ERROR
        message.status.message = span.error


def _add_attributes(pairs: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        if value is not None:
            _set_value(pairs.add(key=key).value, value)


def _set_value(message: Any, value: Any) -> None:
    match value:
        case str():
            # paths may contain lone surrogates, which protobuf does not accept
            message.string_value = value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
        case bool():
            message.bool_value = value
        case int() if -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            message.int_value = value
        case int():
            message.string_value = str(value)
        case float():
            message.double_value = value
        case _:
            message.array_value.SetInParent()
            for item in value:
                _set_value(message.array_value.values.add(), item)


class SpanSender:
    """Sends ended spans once a second; spans that cannot be sent in time or exceed the buffer are dropped.

    Parameters
    ----------
    resource
        Attributes of the process, from `pod_resource`.
    endpoint
        Base URL of an OTLP/HTTP receiver.
    local
        Address to send from; None for any.
    """

    def __init__(self, resource: Mapping[str, str], endpoint: str, local: str | None):
        url = urlsplit(endpoint)
        self._encoder, self._local, self._encrypted = SpanEncoder(resource), local, url.scheme == "https"
        self._host, self._port = host_and_port(url)
        self._head = (
            f"POST {url.path.rstrip('/')}/v1/traces HTTP/1.1\r\nHost: {url.netloc}\r\n"
            "Content-Type: application/x-protobuf\r\nContent-Length: "
        )
        self._buffer: list[Span] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._client: HttpClient | None = None

    def add(self, span: Span) -> None:
        """Add a span to the buffer; needs a running event loop."""
        buffer = self._buffer
        if len(buffer) < _MAX_BUFFERED_SPANS:
            buffer.append(span)
        if self._sending is not None:
            return
        if len(buffer) >= _BATCH_SPANS:
            self._begin_sending()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SEND_PAUSE_S, self._begin_sending)

    def _begin_sending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None and self._buffer:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._buffer:
                batch, self._buffer = self._buffer[:_BATCH_SPANS], self._buffer[_BATCH_SPANS:]
                await self._send(self._encoder.encode(batch))
        finally:
            self._sending = None

    async def _send(self, body: bytes) -> None:
        """Send a request; retry failures until the timeout."""
        if self._client is None:
            self._client = HttpClient(
                local=self._local,
                names=Names(None),
                dial_timeout_s=_SEND_TIMEOUT_S,
                max_age_s=_CONNECTION_AGE_S,
                encrypted=self._encrypted,
            )
        head = f"{self._head}{len(body)}\r\n\r\n".encode()
        try:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                while True:
                    try:
                        status, _ = await self._client.request(self._host, self._port, head, body)
                        if status < 500 and status not in (408, 429):
                            return
                    except (DialError, BrokenError):
                        pass
                    await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError:
            return

    async def close(self) -> None:
        """Send the remaining spans within a short time and close connections."""
        self._begin_sending()
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=_FLUSH_S)
            if self._sending is not None:
                self._sending.cancel()
        if self._client is not None:
            self._client.close()
