"""Samples of everything once an interval, all stamped with the same instant of a regular grid."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from faultset.collector.ipc.channel import AnswerT, Peer, Request
from faultset.collector.platforms.local.node.messages import ReadSamples
from faultset.collector.platforms.local.relay.messages import ReadCounters
from faultset.collector.platforms.local.telemetry.source import ScrapeTarget, StateSample
from faultset.collector.platforms.local.telemetry.system_metrics import add_system_samples
from faultset.collector.sources.exposition import ExpositionReader
from faultset.collector.sources.metric_store import MetricStore, SeriesKey, canonical_labels
from faultset.core.errors import PlatformError

_TIMEOUT_SHARE = 0.8
_SPREAD_SHARE = 0.1
_HEADERS = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
_NETWORK_LABELS = canonical_labels({"interface": "eth0"})

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Scraped:
    """One pod as the scraper knows it."""

    pod: str
    service: str | None
    container: str | None
    url: str | None
    reader: ExpositionReader
    up: int


@dataclass(kw_only=True)
class ScrapeHealth:
    """How scraping has gone so far."""

    scrapes: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    last_scrape_ns: int | None = None
    worst_lag_ns: int = 0


class Scraper:
    """Fills a store from the pods' metrics, the node, the relay and the state of the objects.

    A pod that does not answer within the interval misses its own samples and nobody else's; its `up` is 0.

    Parameters
    ----------
    phase
        Share of the interval by which instants lie behind its whole multiples. Episodes that run beside each other
        have different ones, so that their pods are not all asked at the same moment.
    """

    def __init__(
        self, store: MetricStore, *, interval_s: float, node: Peer | None, relay: Peer | None, phase: float = 0.0
    ):
        self._store = store
        self._interval_s, self._phase = interval_s, phase
        self._node = node
        self._relay = relay
        self._pods: dict[str, Scraped] = {}
        self._session: aiohttp.ClientSession | None = None
        self._state: tuple[list[int], list[float]] = ([], [])
        self._container_numbers: dict[tuple[Any, ...], int] = {}
        self._ticks: set[asyncio.Task[None]] = set()
        self.services: dict[str, str | None] = {}
        self.health = ScrapeHealth()

    def configure(self, targets: Iterable[ScrapeTarget]) -> None:
        """Take over the full list of pods; what is known of a pod that stays is kept."""
        known, self._pods = self._pods, {}
        for target in targets:
            name = target.pod
            self.services[name] = target.service
            before = known.get(name)
            if before is None or before.container != target.container:
                before = self._scraped(name, target.service, target.container)
            before.url = None if target.address is None else "http://{}:{}/metrics".format(*target.address)
            self._pods[name] = before

    def set_state(self, samples: Iterable[StateSample]) -> None:
        """Replace the samples of the objects' state, which are repeated at every scrape."""
        numbers: list[int] = []
        values: list[float] = []
        for one in samples:
            series = SeriesKey(one.service, one.pod, one.container, one.metric, canonical_labels(one.labels), one.kind)
            numbers.append(self._store.number(series))
            values.append(one.value)
        self._state = (numbers, values)

    async def run(self) -> None:
        """Scrape for ever, once an interval."""
        interval_ns = round(self._interval_s * 1e9)
        phase_ns = round(self._phase * interval_ns)

        def latest_ns() -> int:
            return (time.time_ns() - phase_ns) // interval_ns * interval_ns + phase_ns

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
        """Take all samples of one instant."""
        self._store.add(tick_ns, *self._state)
        pods = [pod for pod in self._pods.values() if pod.url is not None]
        pause_s = self._interval_s * _SPREAD_SHARE / max(len(pods), 1)
        add_system_samples(self._store, tick_ns)
        await asyncio.gather(
            self._from_node(tick_ns),
            self._from_relay(tick_ns),
            *(self._from_pod(tick_ns, pod, pause_s * place) for place, pod in enumerate(pods)),
        )
        self.health.scrapes += 1
        self.health.last_scrape_ns = tick_ns

    async def close(self) -> None:
        """End the scrapes that are under way and close all connections."""
        for task in self._ticks:
            task.cancel()
        await asyncio.gather(*self._ticks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        for peer in (self._node, self._relay):
            if peer is not None:
                peer.close()

    def _scraped(self, name: str, service: str | None, container: str | None) -> Scraped:
        def register(metric: str, labels: str, kind: str) -> int:
            return self._store.number(SeriesKey(service, name, container, metric, labels, kind))

        return Scraped(
            pod=name,
            service=service,
            container=container,
            url=None,
            reader=ExpositionReader(register),
            up=register("up", canonical_labels({}), "gauge"),
        )

    async def _from_pod(self, tick_ns: int, pod: Scraped, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=_HEADERS)
        timeout = aiohttp.ClientTimeout(total=self._interval_s * _TIMEOUT_SHARE)
        assert pod.url is not None
        try:
            async with self._session.get(pod.url, timeout=timeout) as response:
                response.raise_for_status()
                numbers, values = pod.reader.read(await response.text("utf-8"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            logger.debug("no samples from %s: %s", pod.pod, error)
            self.health.failures[pod.pod] = self.health.failures.get(pod.pod, 0) + 1
            self._store.add(tick_ns, (pod.up,), (0.0,))
            return
        numbers.append(pod.up)
        values.append(1.0)
        self._store.add(tick_ns, numbers, values)

    async def _from_node(self, tick_ns: int) -> None:
        numbers: list[int] = []
        values: list[float] = []
        known = self._container_numbers
        for one in await self._ask(self._node, ReadSamples()) or ():
            key = (one.pod, one.container, one.metric, *one.labels.items())
            number = known.get(key)
            if number is None:
                series = SeriesKey(None, one.pod, one.container, one.metric, canonical_labels(one.labels), one.kind)
                number = known[key] = self._store.number(series)
            numbers.append(number)
            values.append(one.value)
        self._store.add(tick_ns, numbers, values)

    async def _from_relay(self, tick_ns: int) -> None:
        numbers: list[int] = []
        values: list[float] = []
        known = self._container_numbers
        for pod, counters in (await self._ask(self._relay, ReadCounters()) or {}).items():
            for counter, value in asdict(counters).items():
                number = known.get((pod, counter))
                if number is None:
                    metric = f"container_network_{counter}_total"
                    series = SeriesKey(None, pod, None, metric, _NETWORK_LABELS, "counter")
                    number = known[pod, counter] = self._store.number(series)
                numbers.append(number)
                values.append(float(value))
        self._store.add(tick_ns, numbers, values)

    async def _ask(self, peer: Peer | None, request: Request[AnswerT]) -> AnswerT | None:
        if peer is None:
            return None
        try:
            return await peer.call(request, timeout_s=self._interval_s * _TIMEOUT_SHARE)
        except (OSError, PlatformError, ValueError) as error:
            logger.debug("no statistics: %s", error)
            return None
