"""The telemetry process of the embedded platform, which replaces Prometheus and Jaeger.

It scrapes all targets at a fixed interval, each at an offset derived from its name, receives spans, keeps everything in
memory and writes a time window to Arrow files on request.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pyarrow as pa
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from faultset.collector.ipc.channel import Peer, Request, ResponseT, serve
from faultset.collector.platforms.local.messages import (
    ConfigureTelemetry,
    DiscardTelemetry,
    ReadCounters,
    ReadHealth,
    ReadSamples,
    ReplaceState,
    ScrapeTarget,
    StateSample,
    TelemetryHealth,
    WriteSnapshot,
)
from faultset.collector.sources.stores import (
    ExpositionReader,
    MetricStore,
    MetricWindow,
    SeriesKey,
    SpanStore,
    SpanWindow,
)
from faultset.core.errors import PlatformError
from faultset.core.files import replacing
from faultset.core.processes import die_with_parent
from faultset.datasets.telemetry_formats.prometheus import canonical_labels
from faultset.datasets.telemetry_formats.spans import read_spans

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PRESSURE_METRICS = {
    ("cpu", "some"): "node_pressure_cpu_waiting_seconds_total",
    ("memory", "some"): "node_pressure_memory_waiting_seconds_total",
    ("memory", "full"): "node_pressure_memory_stalled_seconds_total",
    ("io", "some"): "node_pressure_io_waiting_seconds_total",
    ("io", "full"): "node_pressure_io_stalled_seconds_total",
}


def add_system_samples(store: MetricStore, time_ns: int) -> None:
    """Add a sample of each series of this machine, without a service or pod."""
    numbers, values = [], []
    for metric, labels, kind, value in system_samples():
        numbers.append(store.number(SeriesKey(None, None, None, metric, canonical_labels(labels), kind)))
        values.append(value)
    store.add(time_ns, numbers, values)


def system_samples() -> Iterator[tuple[str, dict[str, str], str, float]]:
    """Yield the metric, labels, kind and value of each series of this machine."""
    for number, times in enumerate(psutil.cpu_times(percpu=True)):
        for mode in _CPU_MODES:
            yield "node_cpu_seconds_total", {"cpu": str(number), "mode": mode}, "counter", getattr(times, mode, 0.0)
    memory = psutil.virtual_memory()
    yield "node_memory_MemTotal_bytes", {}, "gauge", float(memory.total)
    yield "node_memory_MemAvailable_bytes", {}, "gauge", float(memory.available)
    for minutes, load in zip((1, 5, 15), os.getloadavg(), strict=True):
        yield f"node_load{minutes}", {}, "gauge", load
    yield from _pressure_samples()


def _pressure_samples() -> Iterator[tuple[str, dict[str, str], str, float]]:
    """Yield the kernel's pressure stall information; nothing if the kernel has none."""
    for resource in ("cpu", "memory", "io"):
        with suppress(OSError, ValueError):
            for line in Path("/proc/pressure", resource).read_text(encoding="ascii").splitlines():
                share, _, fields = line.partition(" ")
                if metric := _PRESSURE_METRICS.get((resource, share)):
                    yield metric, {}, "counter", int(fields.rpartition("total=")[2]) / 1e6


_TIMEOUT_SHARE = 0.8
_TOLERANCE_NS = 2_000_000
"""Maximum delay at which a sample still gets the planned time of its scrape, as in Prometheus."""
_SCRAPE_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
_NETWORK_LABELS = canonical_labels({"interface": "eth0"})

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ScrapedPod:
    """A pod with the state that the scraper keeps for it."""

    pod: str
    service: str | None
    container: str | None
    url: str | None
    reader: ExpositionReader
    up: int


class Scraper:
    """Fills a store with samples of the pods, the node, the relay and object states.

    A pod that does not respond in time has only the sample `up`, with value 0.

    Parameters
    ----------
    salt
        Changes the offsets of all targets, so that they differ between episodes.
    """

    def __init__(
        self, store: MetricStore, *, interval_s: float, node: Peer | None, relay: Peer | None, salt: float = 0.0
    ):
        self._store = store
        self._interval_s, self._salt = interval_s, salt
        self._node = node
        self._relay = relay
        self._pods: dict[str, ScrapedPod] = {}
        self._session: aiohttp.ClientSession | None = None
        self._state: tuple[list[int], list[float]] = ([], [])
        self._series_numbers: dict[tuple[Any, ...], int] = {}
        self._last_readings: set[tuple[str, str, int]] = set()
        self._ticks: set[asyncio.Task[None]] = set()
        self._ended_ns: dict[str, int] = {}
        self.services: dict[str, str | None] = {}
        self.scrapes = self.worst_lag_ns = 0
        self.failures: dict[str, int] = {}
        self.last_scrape_ns: int | None = None

    def configure(self, targets: Iterable[ScrapeTarget]) -> None:
        """Replace the list of pods; pods that were already in the list keep their state."""
        previous, self._pods = self._pods, {}
        for target in targets:
            name = target.pod
            self.services[name] = target.service
            pod = previous.get(name)
            if pod is None or pod.container != target.container:
                pod = self._add_pod(name, target.service, target.container)
            pod.url = None if target.address is None else "http://{}:{}/metrics".format(*target.address)
            self._pods[name] = pod
        now_ns = time.time_ns()
        ended = {**dict.fromkeys(previous, now_ns), **self._ended_ns}
        self._ended_ns = {name: ended_ns for name, ended_ns in ended.items() if name not in self._pods}

    def discard(self, before_ns: int) -> None:
        """Remove the samples before a time, and the series of pods that ended at least two intervals before it."""
        last_ns = before_ns - round(2 * self._interval_s * 1e9)
        ended = {name for name, ended_ns in self._ended_ns.items() if ended_ns < last_ns}
        self._series_numbers = {key: number for key, number in self._series_numbers.items() if key[0] not in ended}
        self._store.discard(before_ns, ended)
        ended -= self._store.pods
        self._ended_ns = {name: ended_ns for name, ended_ns in self._ended_ns.items() if name not in ended}

    def set_state(self, samples: Iterable[StateSample]) -> None:
        """Replace the samples of object states, which are repeated at every scrape."""
        numbers: list[int] = []
        values: list[float] = []
        for sample in samples:
            series = SeriesKey(
                sample.service,
                sample.pod,
                sample.container,
                sample.metric,
                canonical_labels(sample.labels),
                sample.kind,
            )
            numbers.append(self._store.number(series))
            values.append(sample.value)
        self._state = (numbers, values)

    async def run(self) -> None:
        """Scrape at every interval until cancelled."""
        interval_ns = round(self._interval_s * 1e9)

        def latest_ns() -> int:
            return time.time_ns() // interval_ns * interval_ns

        tick_ns = latest_ns() + interval_ns
        while True:
            await asyncio.sleep(max(0, tick_ns - time.time_ns()) / 1e9)
            lag_ns = time.time_ns() - tick_ns
            self.worst_lag_ns = max(self.worst_lag_ns, lag_ns)
            if lag_ns < interval_ns:
                task = asyncio.create_task(self.scrape(tick_ns))
                self._ticks.add(task)
                task.add_done_callback(self._ticks.discard)
            tick_ns = max(tick_ns + interval_ns, latest_ns())

    async def scrape(self, tick_ns: int) -> None:
        """Take one sample of each series in the interval that begins at `tick_ns`."""
        pods = [pod for pod in self._pods.values() if pod.url is not None]
        await asyncio.gather(
            self._scrape_states(tick_ns),
            self._scrape_machine(tick_ns),
            self._scrape_node(tick_ns),
            self._scrape_relay(tick_ns),
            *(self._scrape_pod(tick_ns, pod) for pod in pods),
        )
        self.scrapes += 1
        self.last_scrape_ns = tick_ns

    def offset_ns(self, target: str) -> int:
        """Return when a target is scraped, in nanoseconds after the start of each interval."""
        return round(random.Random(f"{self._salt}/{target}").random() * self._interval_s * 1e9)

    async def _await_moment(self, tick_ns: int, target: str) -> int:
        """Wait until a target is due, and return the time of its samples."""
        due_ns = tick_ns + self.offset_ns(target)
        await asyncio.sleep(max(0, due_ns - time.time_ns()) / 1e9)
        now_ns = time.time_ns()
        return due_ns if now_ns - due_ns <= _TOLERANCE_NS else now_ns

    async def close(self) -> None:
        for task in self._ticks:
            task.cancel()
        await asyncio.gather(*self._ticks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        for peer in (self._node, self._relay):
            if peer is not None:
                peer.close()

    def _add_pod(self, name: str, service: str | None, container: str | None) -> ScrapedPod:
        def register(metric: str, labels: str, kind: str) -> int:
            return self._store.number(SeriesKey(service, name, container, metric, labels, kind))

        return ScrapedPod(
            pod=name,
            service=service,
            container=container,
            url=None,
            reader=ExpositionReader(register),
            up=register("up", canonical_labels({}), "gauge"),
        )

    async def _scrape_states(self, tick_ns: int) -> None:
        time_ns = await self._await_moment(tick_ns, "kube-state-metrics")
        self._store.add(time_ns, *self._state)

    async def _scrape_machine(self, tick_ns: int) -> None:
        add_system_samples(self._store, await self._await_moment(tick_ns, "node-exporter"))

    async def _scrape_pod(self, tick_ns: int, pod: ScrapedPod) -> None:
        time_ns = await self._await_moment(tick_ns, pod.pod)
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=_SCRAPE_HEADERS)
        timeout = aiohttp.ClientTimeout(total=self._interval_s * _TIMEOUT_SHARE)
        assert pod.url is not None
        try:
            async with self._session.get(pod.url, timeout=timeout) as response:
                response.raise_for_status()
                numbers, values = pod.reader.read(await response.text("utf-8"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("cannot scrape pod %s: %s", pod.pod, error)
            self.failures[pod.pod] = self.failures.get(pod.pod, 0) + 1
            self._store.add(time_ns, (pod.up,), (0.0,))
            return
        numbers.append(pod.up)
        values.append(1.0)
        self._store.add(time_ns, numbers, values)

    async def _scrape_node(self, tick_ns: int) -> None:
        await self._await_moment(tick_ns, "kubelet")
        readings: dict[tuple[str, str, int], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
        series_numbers = self._series_numbers
        for sample in await self._request(self._node, ReadSamples(interval_s=self._interval_s)) or ():
            key = (sample.pod, sample.container, sample.metric, *sample.labels.items())
            number = series_numbers.get(key)
            if number is None:
                series = SeriesKey(
                    None, sample.pod, sample.container, sample.metric, canonical_labels(sample.labels), sample.kind
                )
                number = series_numbers[key] = self._store.number(series)
            numbers, values = readings[sample.pod, sample.container, sample.time_ns]
            numbers.append(number)
            values.append(sample.value)
        for reading in readings.keys() - self._last_readings:
            self._store.add(reading[2], *readings[reading])
        self._last_readings = set(readings)

    async def _scrape_relay(self, tick_ns: int) -> None:
        time_ns = await self._await_moment(tick_ns, "relay")
        numbers: list[int] = []
        values: list[float] = []
        series_numbers = self._series_numbers
        for pod, counters in (await self._request(self._relay, ReadCounters()) or {}).items():
            for counter, value in asdict(counters).items():
                number = series_numbers.get((pod, counter))
                if number is None:
                    metric = f"container_network_{counter}_total"
                    series = SeriesKey(None, pod, None, metric, _NETWORK_LABELS, "counter")
                    number = series_numbers[pod, counter] = self._store.number(series)
                numbers.append(number)
                values.append(float(value))
        self._store.add(time_ns, numbers, values)

    async def _request(self, peer: Peer | None, request: Request[ResponseT]) -> ResponseT | None:
        if peer is None:
            return None
        try:
            return await peer.call(request, timeout_s=self._interval_s * _TIMEOUT_SHARE)
        except (OSError, PlatformError, ValueError) as error:
            logger.debug("cannot read statistics: %s", error)
            return None


_PROTOBUF = "application/x-protobuf"
_MAX_BODY_BYTES = 64 << 20


class Receiver:
    """An HTTP server for `POST /v1/traces` in protobuf, plain or compressed."""

    def __init__(self, store: SpanStore):
        self._store = store
        self._response = ExportTraceServiceResponse().SerializeToString()
        self._runner: web.AppRunner | None = None

    async def start(self, ip: str, port: int) -> None:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/traces", self._receive)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, ip, port, backlog=256).start()

    async def close(self) -> None:
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


_ROWS_PER_BATCH = 1 << 16


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
                ConfigureTelemetry: lambda request: self._scraper.configure(request.targets),
                ReplaceState: lambda request: self._scraper.set_state(request.samples),
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
        {"metrics": self._scraper, "spans": self._spans}[request.table].discard(request.before_ns)

    def health(self, request: ReadHealth) -> TelemetryHealth:
        """Return counts of received telemetry and the worst delay of a scrape."""
        scraper = self._scraper
        result = TelemetryHealth(
            spans=len(self._spans),
            samples=len(self._metrics),
            scrapes=scraper.scrapes,
            scrape_failures=dict(scraper.failures),
            last_scrape_ns=scraper.last_scrape_ns,
            worst_lag_ms=scraper.worst_lag_ns / 1e6,
        )
        if request.reset_lag:
            scraper.worst_lag_ns = 0
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
        writer.write_table(table, max_chunksize=_ROWS_PER_BATCH)
    return table.num_rows


def main(
    socket_path: str,
    node_socket: str | None,
    relay_socket: str | None,
    otlp_ip: str,
    otlp_port: int,
    interval_s: float,
    folder: str,
    parent: int | None = None,
) -> None:
    """Run the telemetry process until it is killed or its parent ends.

    Parameters
    ----------
    socket_path
        Socket for requests; exists once the process can receive spans.
    node_socket, relay_socket
        Sockets of the node and the relay. Until a socket exists, the samples of its process are missing.
    parent
        Process id that must still be the parent; None for the current parent.
    """
    die_with_parent(os.getppid() if parent is None else parent)
    gc.freeze()

    async def run() -> None:
        node, relay = (Peer(Path(path)) if path else None for path in (node_socket, relay_socket))
        server = TelemetryServer(
            node=node, relay=relay, interval_s=interval_s, folder=Path(folder), salt=random.random()
        )
        await server.run(otlp_ip, otlp_port, Path(socket_path))

    asyncio.run(run())
