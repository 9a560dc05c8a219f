"""What RCAEval's words mean in ours: metrics, faults, and services that its files call differently."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

SOURCE = "rcaeval"

_ROLES = (
    ("cpu", "cpu", "1", "sum", "CPU use"),
    ("mem", "memory", "By", "sum", "memory in use"),
    ("memory", "memory", "By", "sum", "memory in use"),
    ("diskio", "disk", "By", "sum", "disk traffic"),
    ("disk", "disk", "By", "sum", "disk traffic"),
    ("socket", "descriptors", "1", "sum", "open sockets"),
    ("sockets", "descriptors", "1", "sum", "open sockets"),
    ("workload", "traffic", "1/s", "sum", "requests per second"),
    ("load", "traffic", "1/s", "sum", "requests per second"),
    ("error", "errors", "1/s", "sum", "failed requests"),
    ("latency*", "latency", "s", "max", "duration of requests, a quantile where one is named"),
    ("lat_*", "latency", "s", "max", "duration of requests, a quantile"),
    ("container-cpu-cfs-*", "throttling", "1", "sum", "raw scheduler counter of the container"),
    ("container-cpu-*", "cpu", "s", "sum", "raw CPU counter of the container"),
    ("container-memory-*", "memory", "By", "sum", "raw memory metric of the container"),
    ("container-network-*", "network", "1", "sum", "raw network counter of the pod"),
    ("container-fs-*", "disk", "1", "sum", "raw disk counter of the container"),
    ("container-blkio-*", "disk", "By", "sum", "raw disk counter of the container"),
    ("container-threads*", "threads", "1", "sum", "threads of the container"),
    ("container-sockets", "descriptors", "1", "sum", "open sockets of the container"),
    ("container-file-descriptors", "descriptors", "1", "sum", "open files of the container"),
    ("container-spec-*", "limits", "1", "sum", "what the container may use"),
    ("container-last-seen", "clock", "s", "max", "when the exporter looked"),
    ("container-start-time-*", "restarts", "s", "max", "start of the container"),
    ("istio-request-duration*", "latency", "s", "max", "duration of requests"),
    ("istio-latency*", "latency", "s", "max", "duration of requests"),
    ("istio-request*", "traffic", "1", "sum", "requests"),
    ("istio-*", "network", "1", "sum", "other metrics of the proxy"),
)

METRIC_ROLES: tuple[Mapping[str, str], ...] = tuple(
    {
        "source": SOURCE,
        "metric": metric,
        "role": role,
        "unit": unit,
        "kind": "gauge",
        "combine": combine,
        "meaning": meaning,
    }
    for metric, role, unit, combine, meaning in _ROLES
)

INDICATORS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu",),
    "mem": ("mem", "memory"),
    "disk": ("diskio", "disk"),
    "socket": ("socket", "sockets"),
    "delay": ("latency", "latency-90", "lat_90"),
    "loss": ("latency", "latency-90", "lat_90"),
}
"""Fault -> metrics in which it shows, as RCAEval scores them; the first that a service has is the truth."""

_RESOURCE = ("Operating System", "resource")
_NETWORK = ("Operating System", "Network/Storage Issue")
_CODE = ("Application", "Code Defect")
FAULT_TYPES: Mapping[str, tuple[str, str]] = {
    "cpu": _RESOURCE,
    "mem": _RESOURCE,
    "disk": _RESOURCE,
    "socket": _RESOURCE,
    "delay": _NETWORK,
    "loss": _NETWORK,
} | dict.fromkeys(("f1", "f2", "f3", "f4", "f5"), _CODE)
"""Fault -> system level and fault type; `resource` is RCAEval's own word."""

RAW_NAMES = ("container-", "istio-")
"""How names of metrics begin as exporters gave them."""

NO_SERVICES = ("main", "PassthroughCluster", "istio-proxy", "frontend-external", "unknown")
"""Names in front of a metric that are no services, and that RCAEval leaves out as well."""


def split_name(column: str) -> tuple[str | None, str]:
    """Return service and metric of a column's name; services have no `_`, metrics may have some.

    Examples
    --------
    >>> split_name("ts-order-service_latency-90"), split_name("frontend_istio-request_total"), split_name("main_mem")
    (('ts-order-service', 'latency-90'), ('frontend', 'istio-request_total'), (None, 'main_mem'))
    """
    service, separator, metric = column.partition("_")
    if not separator or not service or not metric or service in NO_SERVICES or metric.startswith("node-"):
        return None, column
    return service, metric


def same_services(names: Iterable[str], services: Sequence[str]) -> dict[str, str | None]:
    """Say which candidate each name of another file stands for; None for none.

    Metrics call the front end `frontend`, traces `frontendservice`.

    Examples
    --------
    >>> same_services(["frontendservice", "cart", "jaeger"], ["frontend", "cartservice"])
    {'frontendservice': 'frontend', 'cart': 'cartservice', 'jaeger': None}
    """
    known = set(services)
    found: dict[str, str | None] = {}
    for name in names:
        spellings = (name, name.removesuffix("service"), name + "service", name.removesuffix("-service"))
        found[name] = next((spelling for spelling in spellings if spelling in known), None)
    return found
