"""The telemetry process: scrapes metrics, receives spans and writes snapshots."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from faultset.collector.ipc.channel import Peer, serve
from faultset.collector.platforms.local.telemetry.scraper import Scraper
from faultset.collector.platforms.local.telemetry.source import (
    ConfigureTelemetry,
    DiscardTelemetry,
    ReadHealth,
    ReplaceState,
    TelemetryHealth,
    WriteSnapshot,
)
from faultset.collector.sources.metric_store import MetricStore, MetricWindow
from faultset.collector.sources.span_store import SpanStore, SpanWindow
from faultset.core.files import replacing
from faultset.core.processes import die_with_parent
from faultset.datasets.telemetry_formats.spans import read_spans

_PROTOBUF = "application/x-protobuf"
_LARGEST_BODY = 64 << 20


class Receiver:
    """An HTTP server for `POST /v1/traces` in protobuf, plain or compressed."""

    def __init__(self, store: SpanStore):
        self._store = store
        self._response = ExportTraceServiceResponse().SerializeToString()
        self._runner: web.AppRunner | None = None

    async def start(self, ip: str, port: int) -> None:
        """Listen on an address."""
        app = web.Application(client_max_size=_LARGEST_BODY)
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, ip, port, backlog=256).start()

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        if request.content_type != _PROTOBUF:
            return web.Response(status=415, text=f"the content type must be {_PROTOBUF}, got {request.content_type}")
        try:
            for span in read_spans(await request.read()):
                self._store.add(span)
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        return web.Response(body=self._response, content_type=_PROTOBUF)


_BATCH_ROWS = 1 << 16


class TelemetryServer:
    """Handles the requests of the telemetry process; needs a running event loop."""

    def __init__(self, *, node: Peer | None, relay: Peer | None, interval_s: float, folder: Path, salt: float):
        self._metrics = MetricStore()
        self._spans = SpanStore()
        self._folder = folder
        self._scraper = Scraper(self._metrics, interval_s=interval_s, node=node, relay=relay, salt=salt)
        self._receiver = Receiver(self._spans)

    async def run(self, otlp_ip: str, otlp_port: int, socket_path: Path) -> None:
        """Receive spans, scrape metrics and serve requests until cancelled."""
        await self._receiver.start(otlp_ip, otlp_port)
        server = await serve(
            socket_path,
            {
                ConfigureTelemetry: self.configure,
                ReplaceState: self.replace_state,
                WriteSnapshot: self.snapshot,
                DiscardTelemetry: self.discard,
                ReadHealth: self.health,
            },
        )
        async with server:
            try:
                await self._scraper.run()
            finally:
                await self._scraper.close()
                await self._receiver.close()

    def configure(self, request: ConfigureTelemetry) -> None:
        """Replace the list of pods."""
        self._scraper.configure(request.targets)

    def replace_state(self, request: ReplaceState) -> None:
        """Replace the samples of object states."""
        self._scraper.set_state(request.samples)

    async def snapshot(self, request: WriteSnapshot) -> dict[str, int]:
        """Write the rows of `[start_ns, end_ns)` to `<table>.arrow`; return their number by table."""
        target = request.folder or self._folder
        services = dict(self._scraper.services)
        stores = {"metrics": self._metrics, "spans": self._spans}
        rows = {}
        for table in request.tables:
            window = stores[table].window(request.start_ns, request.end_ns)
            rows[table] = await asyncio.to_thread(write_window, window, services, target / f"{table}.arrow")
        return rows

    def discard(self, request: DiscardTelemetry) -> None:
        """Remove the rows of a table before a time."""
        {"metrics": self._scraper, "spans": self._spans}[request.table].discard(request.before_ns)

    def health(self, request: ReadHealth) -> TelemetryHealth:
        """Return counts of received telemetry and the worst delay of a scrape."""
        health = self._scraper.health
        result = TelemetryHealth(
            spans=len(self._spans),
            samples=len(self._metrics),
            scrapes=health.scrapes,
            scrape_failures=dict(health.failures),
            last_scrape_ns=health.last_scrape_ns,
            worst_lag_ms=health.worst_lag_ns / 1e6,
        )
        if request.reset_lag:
            health.worst_lag_ns = 0
        return result


def write_window(window: MetricWindow | SpanWindow, services: Mapping[str, str | None], path: Path) -> int:
    """Write the rows of a window to an Arrow file atomically; return their number."""
    table = window.table(services)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        replacing(path, durable=False) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table, max_chunksize=_BATCH_ROWS)
    return table.num_rows


async def _run(
    socket_path: Path,
    node_socket: Path | None,
    relay_socket: Path | None,
    otlp_ip: str,
    otlp_port: int,
    interval_s: float,
    folder: Path,
) -> None:
    node = None if node_socket is None else Peer(Path(node_socket))
    relay = None if relay_socket is None else Peer(Path(relay_socket))
    telemetry = TelemetryServer(
        node=node, relay=relay, interval_s=interval_s, folder=Path(folder), salt=random.random()
    )
    await telemetry.run(otlp_ip, otlp_port, Path(socket_path))


def main(
    socket_path: Path,
    node_socket: Path | None,
    relay_socket: Path | None,
    otlp_ip: str,
    otlp_port: int,
    interval_s: float,
    folder: Path,
    parent: int | None = None,
) -> None:
    """Run the telemetry process until it is killed or its parent ends.

    Parameters
    ----------
    socket_path
        Socket for requests; exists once the process can receive spans.
    node_socket, relay_socket
        Sockets of the node and the relay. Until a socket exists, the samples of its process are missing.
    otlp_ip, otlp_port
        Address that receives spans.
    interval_s
        Time between two scrapes.
    folder
        Default folder of snapshots.
    parent
        Process id that must still be the parent; None for the current parent.
    """
    die_with_parent(os.getppid() if parent is None else parent)
    gc.freeze()
    asyncio.run(_run(socket_path, node_socket, relay_socket, otlp_ip, otlp_port, interval_s, folder))
