"""Kinds and roles of metrics that neither files nor the built-in catalogue declare."""

from __future__ import annotations

import re
from collections.abc import Mapping

from faultset.datasets.metrics.roles import builtin_catalogue

_ROLE_WORDS = (
    ("errors", r"error|fail|exception|5xx|4xx"),
    ("latency", r"latency|duration|response_time|elapsed|_rt$|^rt_|p9\d|p50|percentile"),
    ("restarts", r"restart"),
    ("throttling", r"throttl"),
    ("limits", r"limit|quota|_max$"),
    ("cpu", r"cpu|load1|load5"),
    ("memory", r"mem|heap|rss|swap|gc_"),
    ("network", r"network|net_|_net|rx_|tx_|socket|tcp|packet|receive|transmit"),
    ("disk", r"disk|_io_|fs_|iops|filesystem|storage"),
    ("threads", r"thread|goroutine"),
    ("descriptors", r"_fds|descriptor|open_files"),
    ("saturation", r"queue|pool|connection|saturat|pending|backlog|lag|wait"),
    ("traffic", r"request|qps|rps|tps|throughput|calls|messages|workload|_count$|_total$"),
)
_MEANS = frozenset({"latency", "saturation", "limits"})


def guess_role(metric: str, kind: str) -> dict[str, str]:
    """Return the row of the catalogue that a metric's name suggests.

    >>> guess_role("cart_queue_length", "gauge")["role"], guess_role("jvm_heap_used", "gauge")["role"]
    ('saturation', 'memory')
    """
    name = metric.lower()
    role = next((role for role, words in _ROLE_WORDS if re.search(words, name)), "other")
    unit = "s" if "second" in name else "By" if "bytes" in name else "1"
    return role_row(metric, role, kind, unit)


def role_row(metric: str, role: str, kind: str, unit: str = "1") -> dict[str, str]:
    """Return a row of the catalogue for a metric of an import."""
    kind = "histogram" if kind in ("bucket", "sum", "count") else "counter" if kind.endswith("counter") else "gauge"
    return {
        "source": "telemetry",
        "metric": metric,
        "role": role,
        "unit": unit,
        "kind": kind,
        "combine": "mean" if role in _MEANS else "sum",
        "keep_label": "",
        "meaning": "",
    }


def infer_kinds(metrics: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each metric that no file declares, from declared types and the names of all metrics.

    Parameters
    ----------
    metrics
        Metric -> kind of its rows, which may be `unknown`.
    types
        Metric family -> declared type.

    >>> infer_kinds(dict.fromkeys(("d_bucket", "d_sum", "d_count", "r_total", "up", "x_count"), "unknown"), {})
    {'d_bucket': 'bucket', 'd_sum': 'sum', 'd_count': 'count', 'r_total': 'counter', 'up': 'gauge', 'x_count': 'gauge'}
    """
    return {metric: _infer_kind(metric, metrics, types) for metric, kind in metrics.items() if kind == "unknown"}


def _infer_kind(metric: str, metrics: Mapping[str, str], types: Mapping[str, str]) -> str:
    for suffix in ("bucket", "sum", "count"):
        family = metric.removesuffix(f"_{suffix}")
        if family == metric:
            continue
        declared = types.get(family)
        if declared in ("histogram", "summary"):
            return suffix
        if declared is None and (suffix == "bucket" or {f"{family}_sum", f"{family}_count"} <= metrics.keys()):
            return suffix
    declared = types.get(metric) or types.get(metric.removesuffix("_total"), "")
    if declared == "counter" or (declared in ("", "unknown", "untyped") and metric.endswith("_total")):
        return "counter"
    return "gauge"


def list_roles(
    metrics: Mapping[str, str], declared: Mapping[str, Mapping[str, str]], mapped: Mapping[str, str]
) -> list[dict[str, str]]:
    """Return catalogue rows for metrics that the built-in catalogue lacks and whose role is declared or can be guessed.

    Parameters
    ----------
    metrics
        Metric -> its kind.
    declared
        Metric -> row that our own export declares; an empty row is not added.
    mapped
        Metric or pattern -> role, from the mapping file; these rows come first.
    """
    rows = [role_row(metric, role, metrics.get(metric, "gauge")) for metric, role in mapped.items()]
    rows += [dict(row) for metric, row in declared.items() if row and metric not in mapped]
    covered = {row["metric"] for row in rows} | declared.keys()
    catalogue = builtin_catalogue()
    for metric, kind in sorted(metrics.items()):
        family = re.sub(r"_(bucket|sum|count)$", "", metric) if kind in ("bucket", "sum", "count") else metric
        name = family.partition("{")[0]
        if covered & {name, family, metric} or catalogue.find(family) is not None:
            continue
        covered.add(family)
        guess = guess_role(family, kind)
        if catalogue.role_of(family) == guess["role"] or guess["role"] == "other":
            continue
        if catalogue.role_of(family) == "other":
            rows.append(guess)
    return rows
