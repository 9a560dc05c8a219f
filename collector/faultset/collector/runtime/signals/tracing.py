"""Spans of one process: made with the OpenTelemetry SDK, sent in the background, never in the way of a request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from requests.adapters import HTTPAdapter

_PROPAGATOR = TraceContextTextMapPropagator()
NO_PARENT = Context()
"""Context under which a trace begins."""

_FLUSH_S = 3.0


@dataclass(frozen=True, kw_only=True)
class SpanStyle:
    """What spans say beside their names; an application's persona may have another one.

    Attributes
    ----------
    call_component
        The attribute `component` of the spans of calls between services, on both sides; none without.
    endpoint_component
        That of the spans of a frontend's endpoints.
    tell_outcome
        Whether spans of calls and of stores carry the status, and those that failed an error.
    """

    call_component: str | None = "gRPC"
    endpoint_component: str | None = "net/http"
    tell_outcome: bool = True

    @property
    def call(self) -> dict[str, str]:
        """Attributes of the spans of calls."""
        return {} if self.call_component is None else {"component": self.call_component}

    @property
    def endpoint(self) -> dict[str, str]:
        """Attributes of the spans of endpoints."""
        return {} if self.endpoint_component is None else {"component": self.endpoint_component}


class _FromAddress(HTTPAdapter):
    """Sends from the pod's own address."""

    def __init__(self, address: str):
        self._address = address
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._address, 0), **options)


class Tracing:
    """Makes spans and sends them to an OTLP/HTTP receiver once a second.

    Parameters
    ----------
    endpoint:
        Base URL of the receiver; without one, spans are made (their ids are in the log) and dropped.
    local:
        Address from which they are sent.
    namespace:
        Where the pod runs, if it is told.
    sampling:
        Share of traces that are kept; the root decides for the whole trace.
    """

    def __init__(
        self,
        *,
        service: str,
        pod: str,
        endpoint: str | None,
        local: str | None,
        sampling: float = 1.0,
        namespace: str | None = None,
    ):
        quiet = logging.getLogger("opentelemetry")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        place = {"k8s.namespace.name": namespace} if namespace else {}
        resource = Resource({"service.name": service, "k8s.pod.name": pod, **place})
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sampling)),
            resource=resource,
            shutdown_on_exit=False,
            span_limits=SpanLimits(),
        )
        if endpoint:
            session = requests.Session()
            session.trust_env = False
            if local:
                session.mount("http://", _FromAddress(local))
            exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=2, session=session)
            self._provider.add_span_processor(
                BatchSpanProcessor(
                    exporter, max_queue_size=8192, schedule_delay_millis=1000, max_export_batch_size=1024
                )
            )
        self._tracer = self._provider.get_tracer("faultset")

    def server(self, name: str, headers: Any, attributes: dict[str, Any]) -> tuple[Span, Context]:
        """Start the span of an incoming request, under the caller's if it says so, and its context."""
        parent = _PROPAGATOR.extract(headers, NO_PARENT)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        return span, context_of(span)

    def client(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of an outgoing request."""
        return self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes)

    def internal(self, name: str, parent: Context) -> Span:
        """Start the span of a part of an operation."""
        return self._tracer.start_span(name, parent, SpanKind.INTERNAL)

    def producer(self, name: str, parent: Context, attributes: dict[str, Any]) -> Span:
        """Start the span of a message that is published."""
        return self._tracer.start_span(name, parent, SpanKind.PRODUCER, attributes)

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
        sent = _PROPAGATOR.extract(headers, NO_PARENT)
        origin = trace.get_current_span(sent).get_span_context()
        links = [Link(origin)] if linked and origin.is_valid else None
        parent = NO_PARENT if linked else sent
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, attributes, links=links)
        return span, context_of(span)

    def flush(self) -> None:
        """Send what is left, for a short while at most."""
        worker = threading.Thread(target=self._provider.shutdown, daemon=True)
        worker.start()
        worker.join(_FLUSH_S)


def context_of(span: Span) -> Context:
    """Return the context under which spans are children of a span."""
    return trace.set_span_in_context(span, NO_PARENT)


def headers_of(context: Context) -> dict[str, str]:
    """Return the headers that hand the span of a context on as parent."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, context)
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
