"""Sample metrics of this machine, named as by Prometheus' node_exporter, so that methods can detect a busy host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from faultset.collector.sources.metric_store import MetricStore, SeriesKey
from faultset.datasets.telemetry_formats.prometheus import canonical_labels

_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_PRESSURE = {
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
    yield from _pressure()


def _pressure() -> Iterator[tuple[str, dict[str, str], str, float]]:
    """Yield the kernel's pressure stall information; nothing if the kernel has none."""
    for resource in ("cpu", "memory", "io"):
        with suppress(OSError, ValueError):
            for line in Path("/proc/pressure", resource).read_text(encoding="ascii").splitlines():
                share, _, fields = line.partition(" ")
                if metric := _PRESSURE.get((resource, share)):
                    yield metric, {}, "counter", int(fields.rpartition("total=")[2]) / 1e6
