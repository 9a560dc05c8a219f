"""RCAEval's folders, names and records."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.datasets.format.schemas import TIME
from faultset.datasets.imports.columns import (
    Ints,
    build_table,
    drop_repeats,
    empty_to_null,
    encode_words,
    epoch_ns,
    filter_window,
    get_text,
    infer_kinds_and_peers,
    list_words,
    numbers,
    pc,
    read_csv,
    read_parquet,
    rename_levels,
    rename_words,
)
from faultset.datasets.imports.contract import Case, build_gauge_roles
from faultset.datasets.status_codes import parse_status_code

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
    ("container-spec-*", "limits", "1", "sum", "limits of the container"),
    ("container-last-seen", "clock", "s", "max", "last time when the exporter saw the container"),
    ("container-start-time-*", "restarts", "s", "max", "start of the container"),
    ("istio-request-duration*", "latency", "s", "max", "duration of requests"),
    ("istio-latency*", "latency", "s", "max", "duration of requests"),
    ("istio-request*", "traffic", "1", "sum", "requests"),
    ("istio-*", "network", "1", "sum", "other metrics of the proxy"),
)

METRIC_ROLES = build_gauge_roles("rcaeval", _ROLES)

INDICATORS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpu",),
    "mem": ("mem", "memory"),
    "disk": ("diskio", "disk"),
    "socket": ("socket", "sockets"),
    "delay": ("latency", "latency-90", "lat_90"),
    "loss": ("latency", "latency-90", "lat_90"),
}
"""Metrics that RCAEval's scoring accepts for a fault; the first that a service has is the truth."""
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
"""System level and fault type of each fault; `resource` is RCAEval's term."""
RAW_NAMES = ("container-", "istio-")
"""Prefixes of metric names that come directly from exporters."""
NO_SERVICES = ("main", "PassthroughCluster", "istio-proxy", "frontend-external", "unknown")
"""Prefixes of columns that are not services; RCAEval leaves these columns out."""


def split_name(column: str) -> tuple[str | None, str]:
    """Split a column name at its first `_` into service and metric.

    >>> split_name("ts-order-service_latency-90"), split_name("frontend_istio-request_total"), split_name("main_mem")
    (('ts-order-service', 'latency-90'), ('frontend', 'istio-request_total'), (None, 'main_mem'))
    """
    service, separator, metric = column.partition("_")
    if not separator or not service or not metric or service in NO_SERVICES or metric.startswith("node-"):
        return None, column
    return service, metric


def match_services(names: Iterable[str], services: Sequence[str]) -> dict[str, str | None]:
    """Return the candidate, or None, for each service name of logs or traces.

    The same service is `frontend` in metrics and `frontendservice` in traces.

    >>> match_services(["frontendservice", "cart", "jaeger"], ["frontend", "cartservice"])
    {'frontendservice': 'frontend', 'cart': 'cartservice', 'jaeger': None}
    """
    candidates = set(services)
    matches: dict[str, str | None] = {}
    for name in names:
        spellings = (name, name.removesuffix("service"), name + "service", name.removesuffix("-service"))
        matches[name] = next((spelling for spelling in spellings if spelling in candidates), None)
    return matches


METRIC_FILES = (
    "metrics.parquet", "metrics.json", "simple_metrics.csv", "simple_data.csv", "data.csv", "metrics.csv",
)  # fmt: skip
"""Files with a case's metrics; the first that a case has is the input of RCAEval's published tables."""
RAW_FILES = ("data.csv", "metrics.csv")
"""Files that may have raw metrics of Prometheus and Istio."""
INDEX = "cases.parquet"
ONSET_FILE = "inject_time.txt"
APPS = {"OB": "online-boutique", "SS": "sock-shop", "TT": "train-ticket"}
_FLAT = re.compile(r"(re[1-9])-?(ob|ss|tt)_([^_]+)_([^_]+)_(\d+)", re.IGNORECASE)
_OTHER_APP = re.compile(r"([^_]+)_([^_]+)_([^_]+)_(\d+)")
_PAIR = re.compile(r"([^_]+)_([^_]+)")
_SUITE = re.compile(r"(RE[1-9])-(OB|SS|TT)", re.IGNORECASE)
_MAX_DEPTH = 6


def case_folders(path: Path) -> Iterator[tuple[Path, tuple[str, ...], dict[str, str]]]:
    """Yield each case's folder, its files with metrics, and its suite, service, fault and instance.

    Folders are sorted and visited down to a maximum depth.
    """
    root = path.resolve() if path.is_dir() else path
    for name, subfolders, files in os.walk(root):
        folder = Path(name)
        candidates = tuple(file for file in METRIC_FILES if file in files)
        label = _parse_label(folder) if candidates else None
        if label is not None:
            subfolders.clear()
            yield folder, candidates, label
            continue
        subfolders.sort()
        if len(folder.relative_to(root).parts) >= _MAX_DEPTH:
            subfolders.clear()


def is_case_file(path: Path) -> bool:
    """Return whether a path is the metrics file of a case."""
    return path.name in METRIC_FILES and _parse_label(path.parent) is not None


def find_cases(path: Path) -> Sequence[Case]:
    """Return all cases below a path, sorted by suite, service, fault and instance."""
    read_index = functools.cache(_read_index)
    cases = []
    for folder, candidates, label in case_folders(path):
        facts: dict[str, Any] = label | read_index(folder.parent).get(folder.name, {})
        key = f"{facts['suite']}/{facts['service']}_{facts['fault']}/{facts['instance']}"
        cases.append(Case(key=key, paths=(folder,), facts=facts, candidates=candidates, has_fault=True))
    if not cases:
        raise DataError(
            f"{path} holds no RCAEval case: a folder such as RE2-OB/cartservice_cpu/1 or re2ob_cartservice_cpu_1 with "
            f"one of {', '.join(METRIC_FILES)}; give the top folder of the unpacked data"
        )
    return sorted(cases, key=lambda case: case.key)


def find_onset(case: Case) -> tuple[int, Path]:
    """Return the injection time of a case, and the file that contains it: in the case's folder, or the index."""
    path = case.paths[0] / ONSET_FILE
    try:
        line = path.read_text(encoding="utf-8-sig").strip().splitlines()[0]
        return int(epoch_ns([float(line)])[0]) if "." in line else int(epoch_ns([int(line)])[0]), path
    except FileNotFoundError:
        if "inject_ns" in case.facts:
            return int(case.facts["inject_ns"]), case.paths[0].parent / INDEX
        raise DataError(
            f"{path} is missing, and {path.parent.parent / INDEX} has no onset of the case; leave the case out"
        ) from None
    except (ValueError, IndexError):
        raise DataError(f"{path} must contain the time of the injection in seconds since 1970; restore it") from None


def _parse_label(folder: Path) -> dict[str, str] | None:
    if flat := _FLAT.fullmatch(folder.name):
        series, app, *parts = flat.groups()
        parts = [f"{series.upper()}-{app.upper()}", *parts]
    elif other := _OTHER_APP.fullmatch(folder.name):
        parts = list(other.groups())
    elif (pair := _PAIR.fullmatch(folder.parent.name)) and folder.name.isdigit():
        suite = next((match[0].upper() for name in reversed(folder.parts) if (match := _SUITE.fullmatch(name))), None)
        parts = [folder.parent.parent.name if suite is None else suite, *pair.groups(), folder.name]
    else:
        return None
    return dict(zip(("suite", "service", "fault", "instance"), parts, strict=True))


def _read_index(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the onset of each case's folder from `cases.parquet`; empty if this file is missing."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    table = read_parquet(path)
    onset = next((name for name in table.column_names if "inject" in name.lower()), None)
    if "case" not in table.column_names or onset is None:
        return {}
    facts = {}
    for name, value in zip(table["case"].to_pylist(), table[onset].to_pylist(), strict=True):
        if name is None or value is None:
            continue
        stamp = int(value.timestamp() * 1e9) if hasattr(value, "timestamp") else int(epoch_ns([value])[0])
        facts[Path(str(name)).name] = {"inject_ns": stamp}
    return facts


_LOG_COLUMNS = ("timestamp", "container_name", "message", "level")
_LOG_TEXT = ("container_name", "message", "level", "time", "req_path", "error", "log_template")
_SPAN_COLUMNS = (
    "traceID", "spanID", "serviceName", "methodName", "operationName", "startTime", "startTimeMillis",
    "duration", "statusCode", "parentSpanID",
)  # fmt: skip
_SPAN_TEXT = ("traceID", "spanID", "serviceName", "methodName", "operationName", "statusCode", "parentSpanID", "time")


def log_rows(path: Path, services: Sequence[str], start_ns: int, end_ns: int) -> pa.Table:
    """Return the log lines of a case inside the view; the magnitude of `timestamp` determines its unit."""
    table = _read_timed(path, "timestamp", _LOG_COLUMNS, _LOG_TEXT, newlines=True)
    containers = encode_words(get_text(table, "container_name", ""))
    logs = build_table(
        "logs",
        {
            "time": table["at"],
            "service": rename_words(containers, match_services(list_words(containers), services)),
            "pod": containers,
            "container": containers,
            "level": rename_levels(get_text(table, "level")),
            "message": get_text(table, "message", ""),
        },
    )
    return filter_window(logs, "time", start_ns, end_ns)


def span_rows(path: Path, services: Sequence[str], start_ns: int, end_ns: int) -> pa.Table:
    """Return the distinct spans of a case that began inside the view; durations are in microseconds."""
    table = _read_timed(path, "startTime", _SPAN_COLUMNS, _SPAN_TEXT)
    for name in ("traceID", "spanID"):
        if name in table.column_names:
            table = table.filter(pc.is_valid(table[name]))
    table = drop_repeats(table, ("traceID", "spanID"))
    reported = encode_words(get_text(table, "serviceName", ""))
    service = rename_words(reported, match_services(list_words(reported), services))
    parents = empty_to_null(get_text(table, "parentSpanID"))
    kind, peer = infer_kinds_and_peers(table["spanID"], parents, service)
    method = get_text(table, "methodName")
    status, code = _read_status(get_text(table, "statusCode"))
    attributes = rename_words(method, lambda name: canonical_json({"method": name}))
    spans = build_table(
        "spans",
        {
            "time": table["at"],
            "trace_id": table["traceID"].cast(pa.string()),
            "span_id": table["spanID"].cast(pa.string()),
            "parent_span_id": parents,
            "service": service,
            "reported_service": reported,
            "peer_service": peer,
            "operation": pc.coalesce(get_text(table, "operationName"), method, ""),
            "kind": kind,
            "duration_ns": pa.array(_convert_durations(table, path)),
            "status": status,
            "status_code": code,
            "attributes": pc.fill_null(attributes.cast(pa.string()), "{}"),
        },
    )
    return filter_window(spans, "time", start_ns, end_ns)


def _read_timed(
    path: Path, clock: str, columns: Sequence[str], text: Sequence[str], *, newlines: bool = False
) -> pa.Table:
    """Return the rows that have a time, in the column `clock` or in milliseconds; add the column `at`."""
    is_parquet = path.suffix == ".parquet"
    table = read_parquet(path, columns) if is_parquet else read_csv(path, columns=columns, text=text, newlines=newlines)
    clock = next((name for name in (clock, f"{clock}Millis") if name in table.column_names), "")
    if not clock or not len(table):
        return table.slice(0, 0).append_column("at", pa.array([], TIME))
    table = table.filter(pc.is_valid(table[clock]))
    column = table[clock]
    if pa.types.is_timestamp(column.type):
        return table.append_column("at", column.cast(pa.timestamp("ns", column.type.tz or "UTC")).cast(TIME))
    is_whole = pa.types.is_integer(column.type)
    stamps = epoch_ns(column.to_numpy() if is_whole else numbers(column, origin=f"column {clock} of {path}"))
    return table.append_column("at", pa.array(stamps, pa.int64()).cast(TIME))


def _convert_durations(table: pa.Table, path: Path) -> Ints:
    if "duration" not in table.column_names:
        return np.zeros(len(table), dtype=np.int64)
    micros = numbers(table["duration"], origin=f"column duration of {path}")
    return np.round(np.nan_to_num(micros) * 1_000).astype(np.int64)


def _read_status(column: pa.ChunkedArray) -> tuple[Any, pa.Array]:
    """Return the status and the code from HTTP codes, or from gRPC codes as numbers or names."""
    status: dict[str, str | None] = {}
    codes: dict[str, str | None] = {}
    for word in list_words(column):
        plain = word.strip().lower()
        number = None if plain == "ok" else parse_status_code(plain)
        codes[word] = None if number is None else str(number)
        if number is None:
            status[word] = plain if plain in ("ok", "error") else "unset"
        else:
            status[word] = "ok" if number == 0 or 100 <= number < 400 else "error"
    words = pc.fill_null(rename_words(column, status).cast(pa.string()), "unset")
    return words, rename_words(column, codes).cast(pa.string()).cast(pa.int32())
