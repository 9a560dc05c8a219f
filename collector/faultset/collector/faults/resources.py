"""Faults in the CPU and memory of containers."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.random import Generator

from faultset.collector.faults.deployments import container_status, get_pod_name, last_end, patch_container
from faultset.collector.faults.registry import Parameters, fault, percent_between
from faultset.collector.faults.targets import list_logic_services
from faultset.collector.platforms.base import Platform
from faultset.collector.sources.contract import SeriesReader
from faultset.datasets.telemetry_formats.kubernetes_objects import quantity


def _read_samples(platform: Platform, pod: str, metric: str, window_s: float) -> pa.Table:
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
    """Return how many cores the pod used on average; 0 without samples.

    Covers the last `window_s` or four sampling intervals, whichever is longer.
    """
    table = _read_samples(platform, pod, "container_cpu_usage_seconds_total", window_s)
    if table.num_rows < 2:
        return 0.0
    times, values = table["time"].to_pylist(), table["value"].to_pylist()
    return max(0.0, values[-1] - values[0]) / max((times[-1] - times[0]) / 1e9, 1e-9)


def counter_now(platform: Platform, pod: str, metric: str) -> float:
    """Return the newest sample of one of the pod's metrics; 0 without samples."""
    table = _read_samples(platform, pod, metric, 15.0)
    return table["value"][-1].as_py() if table.num_rows else 0.0


_CPU_SHARES = (0.35, 0.65)
MIN_MILLICORES = 10


def throttled_periods(platform: Platform, target: str) -> float:
    return counter_now(platform, get_pod_name(platform, target), "container_cpu_cfs_throttled_periods_total")


def is_throttled(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the container has been throttled in at least five periods since the injection."""
    periods = throttled_periods(platform, target) - before
    return f"{parameters['pod']} was throttled in {periods:.0f} periods" if periods >= 5 else None


_CPU = {
    "system_level": "Operating System",
    "category": "symptomatic",
    "root_cause_kind": "Pod",
    "gray": True,
    "targets": list_logic_services,
}


@fault(
    "cpu-throttle",
    **_CPU,
    fault_type="Misconfiguration",
    check=is_throttled,
    observe=throttled_periods,
    check_sees="events",
    intensity=f"a limit of {percent_between(_CPU_SHARES)} of the usage",
    needs=("resize",),
)
def cpu_throttle(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Lower the container's CPU limit in place below its usage."""
    pod = get_pod_name(platform, target)
    cores = float(rng.uniform(*_CPU_SHARES)) * cpu_cores(platform, pod)
    containers = copy.deepcopy(platform.get("Pod", pod)["spec"]["containers"])
    resources = containers[0].setdefault("resources", {})
    requested = quantity((resources.get("requests") or {}).get("cpu", 0))
    # a limit must not be below the request or the smallest quota of container runtimes
    limit = f"{max(MIN_MILLICORES, round(1000 * requested), round(1000 * cores))}m"
    resources.setdefault("limits", {})["cpu"] = limit
    platform.patch("Pod", pod, {"spec": {"containers": containers}})
    return {"pod": pod, "limit": limit}


def cores_in_use(platform: Platform, target: str) -> float:
    return cpu_cores(platform, get_pod_name(platform, target), window_s=3.0)


def uses_much_cpu(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether the container uses most of its CPU limit, and more than before the injection."""
    cores = cores_in_use(platform, target)
    if cores > 0.8 * parameters["limit_cores"] and cores > 1.1 * before:
        return f"{parameters['pod']} uses {cores:.2f} cores, {before:.2f} before"
    return None


@fault(
    "cpu-hog",
    **_CPU,
    fault_type="Code Defect",
    check=uses_much_cpu,
    observe=cores_in_use,
    intensity="2 to 4 busy loops",
    needs=("exec", "runtime"),
)
def cpu_hog(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Run busy loops inside the container, which share its CPU limit."""
    pod, workers, name = get_pod_name(platform, target), int(rng.integers(2, 5)), f"/tmp/{rng.bytes(4).hex()}"
    platform.exec(
        pod,
        ["faultset-work", "cpu", "--workers", str(workers), "--seconds", "1800", "--pid-file", name],
        undo=["faultset-work", "stop", "--pid-file", name],
    )
    return {"pod": pod, "workers": workers, "limit_cores": platform.app.services[target].cpu_limit}


_MEMORY_SHARES = (0.33, 0.67)
_MIN_KIB = 4096
_MEMORY_METRIC = "container_memory_working_set_bytes"


def count_restarts(platform: Platform, target: str) -> tuple[str, int]:
    """Return the name of the newest pod, and how often its container was restarted."""
    return get_pod_name(platform, target), container_status(platform, target).get("restartCount", 0)


def was_killed_at_limit(platform: Platform, target: str, parameters: Mapping[str, Any], before: Any) -> str | None:
    """Check whether a container has been killed at its memory limit since the injection."""
    termination = last_end(container_status(platform, target))
    if termination.get("reason") == "OOMKilled" and count_restarts(platform, target) != before:
        return f"{target} was OOMKilled at a limit of {parameters['limit']}"
    return None


@fault(
    "memory-limit",
    system_level="Virtualization",
    fault_type="Misconfiguration",
    targets=list_logic_services,
    check=was_killed_at_limit,
    observe=count_restarts,
    intensity=f"a limit of {percent_between(_MEMORY_SHARES)} of the usage",
)
def memory_limit(platform: Platform, target: str, rng: Generator) -> Parameters:
    """Roll out a memory limit below the usage; the old pod is stopped first, and the new one cannot start."""
    used_kib = counter_now(platform, get_pod_name(platform, target), _MEMORY_METRIC) / 1024
    share = round(float(rng.uniform(*_MEMORY_SHARES)), 2)
    limit = f"{max(_MIN_KIB, round(share * used_kib))}Ki"
    resources = {"requests": {"cpu": "5m", "memory": limit}, "limits": {"cpu": "1", "memory": limit}}
    patch_container(platform, target, recreate=True, resources=resources)
    return {"limit": limit, "share": share}
