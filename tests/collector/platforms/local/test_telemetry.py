"""The whole process: spans from the real exporter, scrapes through the relay, snapshots while it runs."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client import CollectorRegistry, Counter

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.impairments import Partition
from faultset.collector.platforms.local.messages import (
    ConfigureRelay,
    ConfigureTelemetry,
    PodImpairment,
    ReadHealth,
    RelayRoute,
    RelayTarget,
    ReplaceState,
    ScrapeTarget,
    StateSample,
    WriteSnapshot,
)
from faultset.collector.platforms.local.platform import TelemetrySource
from faultset.core.errors import PlatformError
from faultset.datasets.format.schemas import TABLES

LOCAL = "faultset.collector.platforms.local"
MODULES = {"telemetry": "telemetry", "relay": "relay.process"}
RECEIVER = ("127.4.250.2", 4318)
FOREVER = (0, 2**62)


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("telemetry")
    paths = {name: folder / f"{name}.sock" for name in ("telemetry", "relay")}
    calls = {
        "telemetry": (str(paths["telemetry"]), None, str(paths["relay"]), *RECEIVER, 0.1, str(folder)),
        "relay": (str(paths["relay"]),),
    }
    with ExitStack() as stack:
        for name, arguments in calls.items():
            code = f"from {LOCAL}.{MODULES[name]} import main; main(*{arguments!r})"
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ)))
            stack.callback(process.kill)
        yield paths


@pytest.fixture
def telemetry(sockets: dict[str, Path]) -> Iterator[Channel]:
    channel = Channel(sockets["telemetry"])
    yield channel
    channel.call(ConfigureTelemetry(targets=()))
    channel.close()


@pytest.fixture
def relay(sockets: dict[str, Path]) -> Iterator[Channel]:
    channel = Channel(sockets["relay"])
    yield channel
    channel.call(ConfigureRelay(pods={}, routes=()))
    channel.close()


def geo(address: tuple[str, int] | None) -> ConfigureTelemetry:
    return ConfigureTelemetry(targets=(ScrapeTarget(pod="geo-1", service="geo", container="c", address=address),))


def eventually(condition: Callable[[], Any], *, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def send_span(name: str, *, address: tuple[str, int] = RECEIVER, compression: Compression = Compression.Gzip) -> None:
    exporter = OTLPSpanExporter(f"http://{address[0]}:{address[1]}/v1/traces", compression=compression)
    provider = TracerProvider(resource=Resource({"service.name": "geo", "k8s.pod.name": "geo-1"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.get_tracer("test").start_span(name, attributes={"http.status_code": 200}).end()
    provider.shutdown()


def rows(channel: Channel, table: str, folder: Path, window: tuple[int, int] = FOREVER) -> list[dict[str, Any]]:
    source = TelemetrySource(table, channel, folder)
    batches = list(source.snapshot(*window))
    schema = pa.schema([field for field in TABLES[table] if field.name != "episode"])
    assert all(batch.schema.equals(schema) for batch in batches)
    source.close()
    source.close()
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate])
def test_spans_of_the_real_exporter_arrive(telemetry: Channel, tmp_path: Path, compression: Compression) -> None:
    telemetry.call(geo(None))
    send_span(compression.value, compression=compression)
    (span,) = [row for row in rows(telemetry, "spans", tmp_path) if row["operation"] == compression.value]
    assert (span["service"], span["pod"], span["status_code"], span["attributes"]) == ("geo", "geo-1", 200, "{}")


@pytest.mark.parametrize(
    ("path", "content_type", "status"),
    [("/v1/traces", "application/json", 415), ("/v1/traces", "application/x-protobuf", 400), ("/v1/logs", "x/y", 404)],
)
def test_what_is_not_a_trace_export_is_answered_with_an_error(
    telemetry: Channel, path: str, content_type: str, status: int
) -> None:
    before = telemetry.call(ReadHealth()).spans
    connection = http.client.HTTPConnection(*RECEIVER, timeout=5)
    connection.request("POST", path, b"\xff\xff\xff", {"Content-Type": content_type})
    assert connection.getresponse().status == status
    connection.close()
    assert telemetry.call(ReadHealth()).spans == before


def test_scrapes_and_spans_go_through_the_relay_and_stop_with_a_partition(
    telemetry: Channel,
    relay: Channel,
    tmp_path: Path,
    free_ip: Callable[[], str],
    serve_metrics: Callable[[CollectorRegistry], tuple[str, int]],
) -> None:
    registry = CollectorRegistry()
    Counter("requests", "x", registry=registry)
    pod_ip, port = serve_metrics(registry)
    scrape_ip, spans_ip = free_ip(), free_ip()
    pods, metrics = {pod_ip: "geo-1"}, RelayTarget(pod="geo-1", ip=pod_ip, port=port)
    receiver = RelayTarget(pod=None, ip=RECEIVER[0], port=RECEIVER[1])
    routes = (
        RelayRoute(name="m", ip=scrape_ip, port=port, targets=(metrics,)),
        RelayRoute(name="spans", ip=spans_ip, port=4318, targets=(receiver,)),
    )

    def last(metric: str) -> float | None:
        values = [row["value"] for row in rows(telemetry, "metrics", tmp_path) if row["metric"] == metric]
        return values[-1] if values else None

    assert sorted(relay.call(ConfigureRelay(pods=pods, routes=routes)).listening) == ["m", "spans"]
    telemetry.call(geo((scrape_ip, port)))
    eventually(lambda: last("up") == 1.0)
    eventually(lambda: (last("container_network_transmit_bytes_total") or 0) > 1000)
    send_span("through the relay", address=(spans_ip, 4318))
    assert "through the relay" in {row["operation"] for row in rows(telemetry, "spans", tmp_path)}
    cut = PodImpairment(pod="geo-1", impairment=Partition())
    relay.call(ConfigureRelay(pods=pods, routes=routes, impairments=(cut,)))
    eventually(lambda: last("up") == 0.0)
    assert telemetry.call(ReadHealth()).scrape_failures["geo-1"] >= 1


def test_snapshots_keep_to_their_window(telemetry: Channel, tmp_path: Path) -> None:
    sample = StateSample(metric="x", service="geo", pod=None, container=None, labels={}, kind="gauge", value=1)
    telemetry.call(ReplaceState(samples=(sample,)))
    start = telemetry.call(ReadHealth()).scrapes
    eventually(lambda: telemetry.call(ReadHealth()).scrapes >= start + 4)
    times = sorted({int(row["time"].value) for row in rows(telemetry, "metrics", tmp_path)})
    first, last = times[-3], times[-1]
    inside = rows(telemetry, "metrics", tmp_path, (first, last))
    assert {int(row["time"].value) for row in inside} == {first, times[-2]}
    assert telemetry.call(WriteSnapshot(start_ns=0, end_ns=1)) == {"metrics": 0, "spans": 0}


def test_the_worst_lag_can_be_forgotten(telemetry: Channel) -> None:
    eventually(lambda: telemetry.call(ReadHealth(reset_lag=True)).worst_lag_ms > 0)
    assert telemetry.call(ReadHealth()).worst_lag_ms >= 0


def gone(channel: Channel) -> bool:
    try:
        channel.call(ReadHealth())
    except PlatformError:
        return True
    return False


def test_the_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
from {LOCAL}.telemetry import main
parent = os.getpid()
if os.fork() == 0:
    main(sys.argv[1], None, None, "127.4.250.3", 4318, 1.0, sys.argv[2], parent=parent)
time.sleep(60)
"""
    path = tmp_path / "telemetry.sock"
    with subprocess.Popen([sys.executable, "-c", code, str(path), str(tmp_path)]) as parent:
        channel = Channel(path)
        channel.call(ReadHealth())
        parent.kill()
        assert any(gone(channel) for _ in range(100_000))
        channel.close()
