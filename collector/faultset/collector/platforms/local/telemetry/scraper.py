"""Scrape all targets at a fixed interval, each at a fixed offset within the interval, as Prometheus does.

The offset is derived from the target's name. A sample's time is the time of the scrape; for containers it is the time
at which the node read the sample.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from faultset.collector.ipc.channel import Peer, Request, ResponseT
from faultset.collector.platforms.local.messages import ReadCounters, ReadSamples
from faultset.collector.platforms.local.telemetry.source import ScrapeTarget, StateSample
from faultset.collector.platforms.local.telemetry.system_metrics import add_system_samples
from faultset.collector.sources.exposition import ExpositionReader
from faultset.collector.sources.metric_store import MetricStore, SeriesKey
from faultset.core.errors import PlatformError
from faultset.datasets.telemetry_formats.prometheus import canonical_labels

_TIMEOUT_SHARE = 0.8
_TOLERANCE_NS = 2_000_000
"""Maximum delay at which a sample still gets the planned time of its scrape, as in Prometheus."""
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
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


@dataclass(kw_only=True)
class ScrapeHealth:
    """Counts of scrapes and failures, and the worst delay."""

    scrapes: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    last_scrape_ns: int | None = None
    worst_lag_ns: int = 0


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
        self.health = ScrapeHealth()

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
            self.health.worst_lag_ns = max(self.health.worst_lag_ns, lag_ns)
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
        self.health.scrapes += 1
        self.health.last_scrape_ns = tick_ns

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
        """Cancel running scrapes and close all connections."""
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
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=_HEADERS)
        timeout = aiohttp.ClientTimeout(total=self._interval_s * _TIMEOUT_SHARE)
        assert pod.url is not None
        try:
            async with self._session.get(pod.url, timeout=timeout) as response:
                response.raise_for_status()
                numbers, values = pod.reader.read(await response.text("utf-8"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("cannot scrape pod %s: %s", pod.pod, error)
            self.health.failures[pod.pod] = self.health.failures.get(pod.pod, 0) + 1
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
