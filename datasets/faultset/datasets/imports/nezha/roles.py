"""Which signal each of Nezha's metrics carries."""

from __future__ import annotations

_ROWS = (
    ("CpuUsage(m)", "cpu", "m{core}", "millicores in use"),
    ("CpuUsageRate(%)", "cpu", "%", "share of the CPU limit in use"),
    ("MemoryUsage(Mi)", "memory", "MiBy", "memory in use"),
    ("MemoryUsageRate(%)", "memory", "%", "share of the memory limit in use"),
    ("SyscallRead", "disk", "1", "read system calls in the minute"),
    ("SyscallWrite", "disk", "1", "write system calls in the minute"),
    ("NetworkReceiveBytes", "network", "By/s", "received"),
    ("NetworkTransmitBytes", "network", "By/s", "sent"),
    ("Pod*Latency*", "latency", "s", "quantile of request times, as client or server"),
    ("PodWorkload(Ops)", "traffic", "1/s", "requests"),
    ("PodSuccessRate(%)", "errors", "%", "share of requests that went well; low is bad"),
    ("Node*", "other", "1", "of the node, seen from one of its pods"),
)

METRIC_ROLES: tuple[dict[str, str], ...] = tuple(
    {
        "source": "nezha",
        "metric": metric,
        "role": role,
        "unit": unit,
        "kind": "gauge",
        "combine": "sum" if role in ("traffic", "network") else "max",
        "meaning": meaning,
    }
    for metric, role, unit, meaning in _ROWS
)
