"""Single scrapes, and the metrics of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, Counter

from faultset.collector.ipc.channel import Handlers, Peer, serve
from faultset.collector.load.episode_load import ChangeLoad
from faultset.collector.platforms.local.messages import (
    ContainerSample,
    PodCounters,
    ReadCounters,
    ReadSamples,
    ScrapeTarget,
    StateSample,
)
from faultset.collector.platforms.local.telemetry import Scraper, add_system_samples, system_samples
from faultset.collector.sources.stores import MetricStore
from faultset.datasets.metrics.roles import builtin_catalogue

Serve = Callable[[CollectorRegistry], tuple[str, int]]
Rows = list[dict[str, Any]]
INTERVAL_S = 0.3
SECOND = 1_000_000_000


def pod(name: str, address: tuple[str, int] | None) -> ScrapeTarget:
    return ScrapeTarget(pod=f"{name}-1", service=name, container=f"hotel-{name}", address=address)


def state(metric: str, value: float, *, pod: str | None = None, **labels: str) -> StateSample:
    return StateSample(metric=metric, service="geo", pod=pod, container=None, labels=labels, kind="gauge", value=value)


def run(
    work: Callable[[Scraper], Coroutine[Any, Any, None]],
    *,
    node: Path | None = None,
    relay: Path | None = None,
    salt: float = 0.0,
) -> Rows:
    """Run the coroutine with a scraper and return all samples but those of the machine."""

    async def whole() -> Rows:
        store = MetricStore()
        scraper = Scraper(
            store,
            interval_s=INTERVAL_S,
            node=Peer(node) if node else None,
            relay=Peer(relay) if relay else None,
            salt=salt,
        )
        try:
            await work(scraper)
        finally:
            await scraper.close()
            await asyncio.sleep(0.01)
        table = store.window(0, 2**62).table(scraper.services)
        rows = table.set_column(0, "time", table.column("time").cast(pa.int64())).to_pylist()
        return [row for row in rows if not row["metric"].startswith("node_")]

    return asyncio.run(whole())


def of(rows: Rows, metric: str) -> list[tuple[Any, ...]]:
    return [(row["pod"], row["value"]) for row in rows if row["metric"] == metric]


def first(rows: Rows, metric: str, *columns: str) -> tuple[Any, ...]:
    row = next(row for row in rows if row["metric"] == metric)
    return tuple(row[column] for column in columns)


def values(rows: Rows, column: str) -> set[Any]:
    return {row[column] for row in rows}


def test_samples_of_a_pod_carry_its_owner(serve_metrics: Serve) -> None:
    registry = CollectorRegistry()
    requests = Counter("requests", "x", ["route"], registry=registry)
    requests.labels("/hotels").inc(3)
    address = serve_metrics(registry)

    async def work(scraper: Scraper) -> None:
        scraper.configure([pod("geo", address)])
        await scraper.scrape(1000)
        requests.labels("/hotels").inc()
        await scraper.scrape(2000)

    rows = run(work)
    assert of(rows, "requests_total") == [("geo-1", 3.0), ("geo-1", 4.0)]
    assert of(rows, "up") == [("geo-1", 1.0), ("geo-1", 1.0)]
    assert first(rows, "requests_total", "service", "container", "labels", "kind") == (
        "geo",
        "hotel-geo",
        '{"route":"/hotels"}',
        "counter",
    )


def test_a_pod_that_hangs_or_refuses_misses_only_its_own_samples(
    serve_metrics: Serve, free_ip: Callable[[], str]
) -> None:
    registry = CollectorRegistry()
    Counter("requests", "x", registry=registry)
    address = serve_metrics(registry)

    async def work(scraper: Scraper) -> None:
        with socket.create_server((free_ip(), 0)) as hanging:
            scraper.configure([pod("geo", hanging.getsockname()), pod("rate", (free_ip(), 1)), pod("user", address)])
            await scraper.scrape(1000)
        assert scraper.failures == {"geo-1": 1, "rate-1": 1}
        assert scraper.scrapes == 1

    rows = run(work)
    assert sorted(of(rows, "up")) == [("geo-1", 0.0), ("rate-1", 0.0), ("user-1", 1.0)]
    assert of(rows, "requests_total") == [("user-1", 0.0)]


def test_an_answer_that_is_no_exposition_counts_as_a_failure(free_ip: Callable[[], str]) -> None:
    async def work(scraper: Scraper) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nno\nx")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, free_ip(), 0)
        async with server:
            scraper.configure([pod("geo", server.sockets[0].getsockname())])
            await scraper.scrape(1000)

    rows = run(work)
    assert of(rows, "up") == [("geo-1", 0.0)]
    assert values(rows, "metric") == {"up"}


def test_series_of_a_pod_that_is_gone_are_freed_after_its_last_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MetricStore()
    scraper = Scraper(store, interval_s=1, node=None, relay=None)
    now = 100 * SECOND
    monkeypatch.setattr("faultset.collector.platforms.local.telemetry.time.time_ns", lambda: now)
    scraper.configure([pod("geo", None), pod("rate", None)])
    scraper.configure([pod("rate", None)])
    for before_s, pods in ((101, {"geo-1", "rate-1"}), (103, {"rate-1"})):
        scraper.discard(before_s * SECOND)
        assert store.pods == pods
    scraper.configure([pod("geo", None), pod("rate", None)])
    scraper.discard(200 * SECOND)
    assert store.pods == {"geo-1", "rate-1"}


def test_series_of_a_pod_that_is_gone_end(serve_metrics: Serve) -> None:
    registry = CollectorRegistry()
    Counter("requests", "x", registry=registry)
    address = serve_metrics(registry)

    async def work(scraper: Scraper) -> None:
        scraper.configure([pod("geo", address)])
        scraper.set_state([state("kube_pod_status_ready", 1, pod="geo-1")])
        await scraper.scrape(1000)
        scraper.configure([])
        scraper.set_state([])
        await scraper.scrape(2000)

    rows = run(work)
    assert [len(of(rows, metric)) for metric in ("requests_total", "kube_pod_status_ready")] == [1, 1]
    assert values(rows, "service") == {"geo"}


def test_the_state_of_the_objects_is_repeated_until_it_is_replaced() -> None:
    metric, labels = "kube_deployment_spec_replicas", {"deployment": "geo", "namespace": "n"}

    async def work(scraper: Scraper) -> None:
        scraper.set_state([state(metric, 1, **labels)])
        await scraper.scrape(1000)
        await scraper.scrape(2000)
        scraper.set_state([state(metric, 0, **labels)])
        await scraper.scrape(3000)

    rows = run(work)
    assert of(rows, metric) == [(None, 1.0), (None, 1.0), (None, 0.0)]
    assert values(rows, "labels") == {'{"deployment":"geo"}'}
    assert values(rows, "service") == {"geo"}


def test_node_and_relay_are_asked_and_named_as_the_kubelet_names_them(tmp_path: Path) -> None:
    container = ContainerSample(
        time_ns=700,
        pod="geo-1",
        container="hotel-geo",
        metric="container_cpu_usage_seconds_total",
        labels={"cpu": "total", "id": "/kubepods/x"},
        kind="counter",
        value=1.5,
    )
    counters = {field.name: 0 for field in fields(PodCounters)} | {"receive_bytes": 10, "transmit_packets_dropped": 2}
    node: Handlers = {ReadSamples: lambda request: (container,)}
    relay: Handlers = {ReadCounters: lambda request: {"geo-1": PodCounters(**counters)}}

    async def work(scraper: Scraper) -> None:
        scraper.configure([pod("geo", None)])
        await scraper.scrape(500)
        async with await serve(tmp_path / "node.sock", node), await serve(tmp_path / "relay.sock", relay):
            await scraper.scrape(1000)
            await scraper.scrape(2000)

    rows = run(work, node=tmp_path / "node.sock", relay=tmp_path / "relay.sock")
    assert values(rows, "service") == {"geo"}
    cpu = "container_cpu_usage_seconds_total"
    # the same reading counts once, with its own time
    assert of(rows, cpu) == [("geo-1", 1.5)]
    assert first(rows, cpu, "time") == (700,)
    dropped = "container_network_transmit_packets_dropped_total"
    assert first(rows, dropped, "container", "labels", "kind", "value") == (
        None,
        '{"interface":"eth0"}',
        "counter",
        2.0,
    )
    assert of(rows, "container_network_receive_bytes_total") == [("geo-1", 10.0)] * 2


def test_a_peer_that_answers_too_late_is_asked_anew(tmp_path: Path) -> None:
    pauses = [1.0, 0.0]

    async def change(request: ChangeLoad) -> float:
        await asyncio.sleep(pauses.pop(0))
        return request.factor

    async def whole() -> None:
        async with await serve(tmp_path / "slow.sock", {ChangeLoad: change}):
            peer = Peer(tmp_path / "slow.sock")
            with pytest.raises(TimeoutError):
                await peer.call(ChangeLoad(factor=1.0), timeout_s=0.05)
            assert await peer.call(ChangeLoad(factor=2.0), timeout_s=5) == 2.0
            peer.close()

    asyncio.run(whole())


def test_every_target_is_scraped_at_its_own_regular_moment(serve_metrics: Serve) -> None:
    addresses = [serve_metrics(CollectorRegistry()) for _ in range(6)]

    async def work(scraper: Scraper) -> None:
        scraper.configure([pod(f"service{number}", address) for number, address in enumerate(addresses)])
        scraper.set_state([state("x", 1)])
        task = asyncio.create_task(scraper.run())
        while scraper.scrapes < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    step_ns = round(INTERVAL_S * 1e9)
    moments: list[dict[str | None, float]] = []
    for salt in (0.1, 0.2):
        rows = [row for row in run(work, salt=salt) if row["metric"] in ("up", "x")]
        phases: dict[str | None, list[float]] = {}
        for row in rows:
            phases.setdefault(row["pod"], []).append(row["time"] % step_ns / step_ns)
        assert all(len(sample) >= 3 for sample in phases.values())
        moments.append({name: min(sample) for name, sample in phases.items()})
        assert len({row["time"] for row in rows}) == len(rows)
        assert np.ptp([*moments[-1].values()]) > 0.2
    assert all(moments[0][name] != moments[1][name] for name in moments[0])


def test_cpu_memory_and_load_of_the_machine_are_sampled_and_known_to_the_catalogue() -> None:
    samples = list(system_samples())
    names = {name for name, _, _, _ in samples}
    assert {"node_cpu_seconds_total", "node_memory_MemAvailable_bytes", "node_load1"} <= names
    assert len(samples) == len({(name, *sorted(labels.items())) for name, labels, _, _ in samples})
    for name, _, kind, value in samples:
        row = builtin_catalogue().find(name)
        assert row is not None, name
        assert kind == row.kind
        assert value >= 0


def test_samples_of_the_machine_belong_to_no_service_and_no_pod() -> None:
    store = MetricStore()
    add_system_samples(store, 1000)
    add_system_samples(store, 2000)
    rows = store.window(0, 2**62).table({}).to_pylist()
    assert {(row["service"], row["pod"]) for row in rows} == {(None, None)}
    assert [row["metric"] for row in rows].count("node_load1") == 2
