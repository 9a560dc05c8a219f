"""What a pod has used of the CPU lately, from the telemetry that is collected anyway."""

from __future__ import annotations

import time

import pyarrow as pa
import pyarrow.compute as pc

from faultset.collector.platforms.api.platform import Platform
from faultset.collector.sources.contract import SeriesReader


def _samples(platform: Platform, pod: str, metric: str, window_s: float) -> pa.Table:
    end_ns = time.time_ns()
    source = platform.sources["metrics"]
    window_s = max(window_s, 4 * (source.interval_s or 1.0))
    if isinstance(source, SeriesReader):
        table = source.recent(metric, pod, window_s)
        return table.set_column(0, "time", table["time"].cast(pa.int64())).sort_by("time")
    batches = list(source.snapshot(end_ns - int(window_s * 1e9), end_ns))
    if not batches:
        return pa.table({"time": pa.array([], pa.int64()), "value": pa.array([], pa.float64())})
    table = pa.Table.from_batches(batches)
    for name in ("pod", "metric"):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    table = table.filter((pc.field("pod") == pod) & (pc.field("metric") == metric)).select(["time", "value"])
    return table.set_column(0, "time", table["time"].cast(pa.int64())).sort_by("time")


def cpu_cores(platform: Platform, pod: str, *, window_s: float = 15.0) -> float:
    """Return the mean number of cores that the pod used in the last `window_s` seconds; 0 without samples."""
    table = _samples(platform, pod, "container_cpu_usage_seconds_total", window_s)
    if table.num_rows < 2:
        return 0.0
    times, values = table["time"].to_pylist(), table["value"].to_pylist()
    return max(0.0, values[-1] - values[0]) / max((times[-1] - times[0]) / 1e9, 1e-9)


def counter_now(platform: Platform, pod: str, metric: str) -> float:
    """Return the newest value of one of the pod's counters; 0 without samples."""
    table = _samples(platform, pod, metric, 15.0)
    return table["value"][-1].as_py() if table.num_rows else 0.0
