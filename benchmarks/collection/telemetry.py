"""Cost of the telemetry process: memory per sample, CPU while scraping, time of a snapshot.

    python benchmarks/collection/telemetry.py [--pods 19] [--seconds 20] [--json]

A separate process serves the metrics of simulated pods. The script also fills a store with ten minutes of samples and
times its snapshot, and compares the time to parse a scrape with that of prometheus_client.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.local.messages import ConfigureTelemetry, ReadHealth, ScrapeTarget
from faultset.collector.platforms.local.telemetry import main as telemetry_main
from faultset.collector.platforms.local.telemetry import write_window
from faultset.collector.sources.stores import ExpositionReader, MetricStore, SeriesKey

SERIES_PER_POD = 74
EPISODE_S = 600
_PORT = 9464


def metrics_of_a_pod() -> CollectorRegistry:
    """Return about `SERIES_PER_POD` series: three histograms, counters and gauges."""
    registry = CollectorRegistry()
    for route in range(3):
        Histogram(f"http_server_{route}_request_duration_seconds", "x", ["route"], registry=registry).labels(
            f"/route{route}"
        ).observe(0.01)
    for number in range(SERIES_PER_POD - 3 * 18):
        kind = Counter if number % 2 else Gauge
        kind(f"process_{number}_things", "x", registry=registry)
    return registry


def address(pod: int) -> str:
    """Return the address of a pod's metrics."""
    return f"127.9.200.{1 + pod}"


def serve_metrics(pods: int, ready: Event) -> None:
    """Serve the metrics of all pods."""
    for pod in range(pods):
        start_http_server(_PORT, addr=address(pod), registry=metrics_of_a_pod())
    ready.set()
    time.sleep(3600)


def scrape(pods: int, seconds: float) -> dict[str, float]:
    """Run the process against real servers at 1 Hz."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    servers = context.Process(target=serve_metrics, args=(pods, ready), daemon=True)
    servers.start()
    ready.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "telemetry.sock"
        arguments = (path, None, None, "127.9.250.2", 4318, 1.0, Path(folder))
        process = context.Process(target=telemetry_main, args=arguments, kwargs={"parent": os.getpid()}, daemon=True)
        process.start()
        channel = Channel(path)
        targets = tuple(
            ScrapeTarget(pod=f"p-{pod}", service=f"s-{pod}", container="c", address=(address(pod), _PORT))
            for pod in range(pods)
        )
        channel.call(ConfigureTelemetry(targets=targets))
        time.sleep(2)
        watched = psutil.Process(process.pid)
        before, samples = watched.cpu_times(), channel.call(ReadHealth()).samples
        time.sleep(seconds)
        after, health = watched.cpu_times(), channel.call(ReadHealth())
        resident = watched.memory_full_info().uss
        channel.close()
        process.kill()
        servers.kill()
        process.join()
        servers.join()
    return {
        "samples_per_s": (health.samples - samples) / seconds,
        "share_of_a_core": (after.user + after.system - before.user - before.system) / seconds,
        "worst_lag_ms": health.worst_lag_ms,
        "own_memory_mb": resident / 1e6,
    }


def store(pods: int) -> dict[str, float]:
    """Fill a store with an episode's samples and write a snapshot of it."""
    metrics = MetricStore()
    numbers = [
        metrics.number(SeriesKey(None, f"p-{pod}", "c", f"metric_{number}", "{}", "gauge"))
        for pod in range(pods)
        for number in range(SERIES_PER_POD)
    ]
    values = [float(number) for number in numbers]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for second in range(EPISODE_S):
        metrics.add(second * 10**9, numbers, values)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    rows = len(metrics)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        write_window(metrics.window(0, 2**62), {}, Path(folder) / "metrics.arrow")
        snapshot_s = time.perf_counter() - start
    return {"rows": rows, "memory_mb": grown_mb, "snapshot_s": snapshot_s}


def parse() -> dict[str, float]:
    """Measure repeated reading of a scrape, and compare it with prometheus_client's parser."""
    text = generate_latest(metrics_of_a_pod()).decode()
    reader = ExpositionReader(lambda *_: 0)
    reader.read(text)
    rounds = 200
    start = time.perf_counter()
    for _ in range(rounds):
        reader.read(text)
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(rounds):
        list(text_string_to_metric_families(text))
    return {"read_us": read_s / rounds * 1e6, "read_to_parser": read_s / (time.perf_counter() - start)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=19)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = store(arguments.pods) | parse() | scrape(arguments.pods, arguments.seconds)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, figure in figures.items():
            print(f"{name:20} {figure:12.3f}")


if __name__ == "__main__":
    main()
