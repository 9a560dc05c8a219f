"""OTLP over HTTP: where the pods send their spans."""

from __future__ import annotations

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from faultset.collector.sources.otlp import read_spans
from faultset.collector.sources.span_store import SpanStore

_PROTOBUF = "application/x-protobuf"
_LARGEST_BODY = 64 << 20


class Receiver:
    """An HTTP server that takes `POST /v1/traces` in protobuf, plain or compressed."""

    def __init__(self, store: SpanStore):
        self._store = store
        self._accepted = ExportTraceServiceResponse().SerializeToString()
        self._runner: web.AppRunner | None = None

    async def start(self, ip: str, port: int) -> None:
        """Listen on an address."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, ip, port, backlog=256).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if request.content_type != _PROTOBUF:
            return web.Response(status=415, text=f"send {_PROTOBUF}, not {request.content_type}")
        try:
            for span in read_spans(await request.read()):
                self._store.add(span)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        return web.Response(body=self._accepted, content_type=_PROTOBUF)
