"""A receiver of spans over OTLP/HTTP, for tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {0: "unspecified", 1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True, kw_only=True)
class ReceivedSpan:
    """One span as it arrived."""

    trace: str
    span: str
    parent: str
    service: str
    pod: str
    name: str
    kind: str
    error: bool
    attributes: dict[str, Any]
    events: tuple[str, ...]
    links: tuple[str, ...]
    peer: str
    start_ns: int
    end_ns: int


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


class Receiver:
    """Listens on a free port and keeps every span."""

    def __init__(self, address: str = "127.0.0.1"):
        self.spans: list[ReceivedSpan] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.take(body, self.client_address[0])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer((address, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.endpoint = f"http://{address}:{self._server.server_address[1]}"

    def take(self, body: bytes, peer: str) -> None:
        """Keep the spans of one export."""
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            for span in (span for scope in group.scope_spans for span in scope.spans):
                self.spans.append(
                    ReceivedSpan(
                        trace=span.trace_id.hex(),
                        span=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        service=resource["service.name"],
                        pod=resource["k8s.pod.name"],
                        name=span.name,
                        kind=KINDS[span.kind],
                        error=span.status.code == 2,
                        attributes=_attributes(span.attributes),
                        events=tuple(str(_attributes(event.attributes).get("message")) for event in span.events),
                        links=tuple(f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links),
                        peer=peer,
                        start_ns=span.start_time_unix_nano,
                        end_ns=span.end_time_unix_nano,
                    )
                )

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
