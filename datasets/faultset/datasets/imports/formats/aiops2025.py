"""Import the data of the AIOps Challenge 2025: Online Boutique on TiDB, 400 faults, in one folder per day.

Names of folders and files are eight hours ahead of UTC; times inside are UTC. Each line of `groundtruth.jsonl` becomes
one episode: the half hour before the fault, and the fault.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import (
    build_table,
    constant,
    epoch_ns,
    filter_window,
    list_words,
    numbers,
    parsing,
    pc,
    read_parquet,
)
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_evidence,
    build_gauge_roles,
    reference_end,
    report_issues,
)
from faultset.datasets.telemetry_formats.log_lines import parse_record
from faultset.datasets.telemetry_formats.spans import read_jaeger_spans, read_tags

BEFORE_NS = 1800 * SECOND_NS
"""Length of the view before the fault; most of it is the reference."""
_STEP_S = 60.0
_LOCAL = timedelta(hours=8)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_HOUR_OF_FILE = re.compile(r"_(\d{4}-\d\d-\d\d)_(\d\d)-00-00\.parquet$")
_DELETED = re.compile(r"\s*\(deleted\)\s*$")
_REPLICA = re.compile(r"-(\d+|[0-9a-f]{8,10}-[a-z0-9]{5})$")
_OWNERS = ("object_id", "object_type", "instance", "pod", "kubernetes_node", "namespace", "kpi_key", "kpi_name")
_LABELS = ("device", "mountpoint", "cf", "sql_type", "type")
_POD_TAGS = ("podName", "name", "k8s.pod.name")

METRIC_ROLES = build_gauge_roles(
    "aiops2025",
    (
        ("*rrt*", "latency", "ms", "mean", "duration of requests"),
        ("*error*", "errors", "1", "mean", "failed requests, or their share"),
        ("*timeout", "errors", "1", "sum", "requests without an answer"),
        ("*request", "traffic", "1", "sum", "requests in a minute"),
        ("*response", "traffic", "1", "sum", "responses in a minute"),
        ("*cpu*", "cpu", "1", "mean", "inferred from its name"),
        ("*memory*", "memory", "1", "mean", "inferred from its name"),
        ("*network*", "network", "1", "sum", "inferred from its name"),
        ("*fs_*", "disk", "1", "sum", "inferred from its name"),
        ("*filesystem*", "disk", "1", "mean", "inferred from its name"),
        ("*disk*", "disk", "1", "sum", "inferred from its name"),
        ("*process*", "threads", "1", "sum", "inferred from its name"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """A line of `groundtruth.jsonl`."""

    uuid: str
    start_ns: int
    end_ns: int
    kind: str
    category: str
    names: tuple[str, ...]
    """Services, pods or nodes at fault."""
    is_pod: bool

    @property
    def components(self) -> list[str]:
        """The candidates at fault; a pod counts as its service."""
        return list(dict.fromkeys(_service_of(name) if self.is_pod else name for name in self.names))


class AIOps2025Import(ImportFormat):
    """AIOps Challenge 2025: folders of days next to `groundtruth.jsonl`. The licence forbids commercial use."""

    name = "aiops2025"
    title = "AIOps Challenge 2025"
    layout = (
        ("groundtruth.jsonl", r"(^|/)groundtruth\.jsonl$"),
        ("folders YYYY-MM-DD with metric-parquet", r"(^|/)\d{4}-\d\d-\d\d/(.*/)?metric-parquet(/|$)"),
    )
    weakness = (
        "There are no cases without a fault. Another fault may end shortly before the fault of a case; see the check "
        "`health`."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        """Return the faults on days with telemetry."""
        root = unpack(path)
        faults = [fault for file in sorted(root.rglob("groundtruth.jsonl")) for fault in _read_faults(file)]
        folders = _find_days(root)
        chosen = [fault for fault in faults if _list_days(fault) & folders.keys()]
        report_issues(partial(_find_issues, chosen, len(faults) - len(chosen)))
        if not chosen:
            raise DataError(f"{path} holds no fault of a day with telemetry; give the folder with groundtruth.jsonl")
        return [
            Case(
                key=fault.uuid,
                paths=tuple(folder for day in sorted(_list_days(fault)) for folder in folders.get(day, ())),
                facts={"fault": fault, "others": [other for other in faults if _overlaps(fault, other)]},
                has_fault=True,
            )
            for fault in chosen
        ]

    def load(self, case: Case) -> ForeignEpisode:
        fault: _Fault = case.facts["fault"]
        window = (fault.start_ns - BEFORE_NS, fault.end_ns)
        files = {kind: _list_files(case.paths, kind, *window) for kind in ("metric", "log", "trace")}
        metrics = [table for file in files["metric"] for table in _read_metrics(file, *window)]
        services = {name for table in metrics for name in list_words(table["service"])} - {""}
        unknown = [name for name in fault.components if name not in services]
        if unknown:
            raise DataError(f"{case.key}: the faulty {', '.join(unknown)} has no metrics; leave the case out")
        return ForeignEpisode(
            app="hipstershop",
            view_start_ns=window[0],
            view_end_ns=window[1],
            reference_end_ns=reference_end(*window, fault.start_ns, origin=case.key),
            services=tuple(sorted(services)),
            workload_entry="frontend" if "frontend" in services else "",
            source_intervals_s={"metrics": _STEP_S},
            metric_roles=METRIC_ROLES,
            tables={
                "metrics": lambda: metrics,
                "logs": lambda: (_read_logs(file, *window) for file in files["log"]),
                "spans": lambda: (_read_spans(file, *window) for file in files["trace"]),
            },
            label=_build_label(fault),
            evidence=(_check_health(case.facts["others"]),),
            inputs=tuple(file for kind in files.values() for file in kind),
        )


def _find_issues(faults: Sequence[_Fault], left_out: int) -> Iterator[DataIssue]:
    if left_out:
        problem = f"Telemetry is missing for the days of {count_text(left_out, 'fault')}."
        yield DataIssue("note", "groundtruth.jsonl", problem, "They are left out.")
    preceded = sum(any(_overlaps(fault, other) for other in faults) for fault in faults)
    if preceded:
        problem = f"Another fault is active in the half hour before {count_text(preceded, 'fault')}."
        yield DataIssue("warning", "groundtruth.jsonl", problem, "The check `health` names the other fault.")


def _read_faults(path: Path) -> Iterator[_Fault]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        with parsing(path, f"have a fault in line {number}"):
            row = json.loads(line)
            pair = [row.get("source"), row.get("destination")]
            names = pair if all(pair) else _as_list(row.get("instance")) or _as_list(row.get("service"))
            start_ns, end_ns = (
                int(datetime.fromisoformat(row[name]).astimezone(UTC).timestamp()) * SECOND_NS
                for name in ("start_time", "end_time")
            )
            fault = _Fault(
                uuid=str(row["uuid"]),
                start_ns=start_ns,
                end_ns=end_ns,
                kind=str(row["fault_type"]),
                category=str(row.get("fault_category") or row["fault_type"]),
                names=tuple(str(name) for name in names),
                is_pod=row.get("instance_type") == "pod" or all(pair),
            )
        if not fault.names or fault.end_ns <= fault.start_ns:
            raise DataError(f"line {number} of {path} must name a faulty component and end after its start; restore it")
        yield fault


def _as_list(value: object) -> list[Any]:
    return [item for item in (value if isinstance(value, list) else [value]) if item]


def _overlaps(fault: _Fault, other: _Fault) -> bool:
    """Return whether another fault is active in the view before a fault."""
    return other is not fault and other.start_ns < fault.start_ns and other.end_ns > fault.start_ns - BEFORE_NS


def _to_local(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // SECOND_NS, UTC) + _LOCAL


def _list_days(fault: _Fault) -> set[str]:
    """Return the source's days that overlap the view of a fault: one or two."""
    return {f"{_to_local(time):%Y-%m-%d}" for time in (fault.start_ns - BEFORE_NS, fault.end_ns - 1)}


def _find_days(root: Path) -> Mapping[str, list[Path]]:
    """Return the folders of metrics, logs and traces of each day."""
    days: dict[str, list[Path]] = defaultdict(list)
    for folder in sorted(root.rglob("*-parquet")):
        day = next((name for name in reversed(folder.parts) if _DAY.fullmatch(name)), None)
        if day is not None:
            days[day].append(folder)
    return days


def _list_files(folders: Sequence[Path], kind: str, start_ns: int, end_ns: int) -> list[Path]:
    """Return the files of a kind; files for hours outside the view are left out."""
    files = [
        path for folder in folders if folder.name == f"{kind}-parquet" for path in sorted(folder.rglob("*.parquet"))
    ]
    hours = {f"{_to_local(time):%Y-%m-%d_%H}" for time in range(start_ns, end_ns, 600 * SECOND_NS)}
    hours.add(f"{_to_local(end_ns - 1):%Y-%m-%d_%H}")
    matches = {path: _HOUR_OF_FILE.search(path.name) for path in files}
    return [path for path, match in matches.items() if match is None or "_".join(match.groups()) in hours]


def _service_of(pod: str) -> str:
    return _REPLICA.sub("", pod) or pod


def _read_metrics(path: Path, start_ns: int, end_ns: int) -> Iterator[pa.Table]:
    """Yield the rows of each numeric column of a file."""
    table = _read_window(path, "time", start_ns, end_ns)
    rows = len(table)
    if not rows:
        return
    owners = table.select([name for name in (*_OWNERS, *_LABELS) if name in table.column_names]).to_pylist()
    parsed = [_find_owner(row, is_pod=path.parent.name == "pod") for row in owners]
    labels = [
        canonical_json({name: row[name] for name in _LABELS if row.get(name) not in (None, "")}) for row in owners
    ]
    for name in table.column_names:
        column = table[name]
        if name in ("at", "time", *_OWNERS, *_LABELS) or not _is_number(column.type):
            continue
        values = numbers(column, origin=f"column {name} of {path}")
        cells = {
            "time": table["at"],
            "service": pa.array([service for service, _ in parsed], pa.string()),
            "pod": pa.array([pod for _, pod in parsed], pa.string()),
            "metric": constant(f"pod_{name}" if path.parent.name == "pod" else name, rows),
            "labels": pa.array(labels, pa.string()),
            "kind": constant("gauge", rows),
            "value": pa.array(np.nan_to_num(values)),
        }
        yield build_table("metrics", cells).filter(pa.array(~np.isnan(values)))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _find_owner(row: Mapping[str, Any], *, is_pod: bool) -> tuple[str | None, str | None]:
    """Return the candidate and the pod that a metric of a pod, node, service or TiDB component belongs to."""
    text = {name: _DELETED.sub("", str(row.get(name) or "")) for name in _OWNERS}
    pod = text["pod"] or (text["object_id"] if is_pod or text["object_type"] == "pod" else "")
    if pod:
        return _service_of(pod), pod
    if text["object_type"] == "node":
        return text["kubernetes_node"] or text["instance"] or text["object_id"] or None, None
    if text["object_type"] == "service":
        return text["object_id"] or text["instance"] or None, None
    return (text["object_type"] if text["object_type"] in ("tidb", "tikv", "pd") else None), None


def _read_logs(path: Path, start_ns: int, end_ns: int) -> pa.Table:
    table = _read_window(path, "@timestamp", start_ns, end_ns)
    lines = [parse_record(str(text)) for text in table["message"].to_pylist()]
    pods = [_DELETED.sub("", str(pod or "")) for pod in table["k8_pod"].to_pylist()]
    services = [_service_of(pod) if pod else None for pod in pods]
    texts = {"service": services, "pod": pods, "container": [service or "" for service in services]}
    texts |= {name: [getattr(line, name) for line in lines] for name in ("level", "message", "trace_id", "span_id")}
    return build_table("logs", _text_columns(texts) | {"time": table["at"]})


def _text_columns(texts: Mapping[str, Sequence[str | None]]) -> dict[str, Any]:
    return {name: pa.array(words, pa.string()) for name, words in texts.items()}


def _read_spans(path: Path, start_ns: int, end_ns: int) -> pa.Table:
    table = _read_window(path, "startTime", start_ns, end_ns)
    start_us = pc.divide(table["at"], 1000)
    spans = table.set_column(table.column_names.index("startTime"), "startTime", start_us).to_pylist()
    with parsing(path, "hold Jaeger spans"):
        rows = [received.row for received in read_jaeger_spans([{"spans": spans}])]
        pods = [_find_pod(span) for span in spans]
    services = [row.reported_service for row in rows]
    texts = {
        "service": services,
        "reported_service": services,
        "pod": pods,
        "parent_span_id": [row.parent_span_id.hex() or None for row in rows],
        "trace_id": [row.trace_id.hex() for row in rows],
        "span_id": [row.span_id.hex() for row in rows],
    }
    cells = _text_columns(texts) | {"time": table["at"]}
    others = ("peer_service", "operation", "kind", "duration_ns", "status", "status_code", "attributes")
    return build_table("spans", cells | {name: pa.array([getattr(row, name) for row in rows]) for name in others})


def _find_pod(span: Mapping[str, Any]) -> str | None:
    tags = read_tags((span.get("process") or {}).get("tags"))
    return next((str(tags[name]) for name in _POD_TAGS if tags.get(name)), None)


def _read_window(path: Path, clock: str, start_ns: int, end_ns: int) -> pa.Table:
    """Return the rows of a file within a window, with their time as `at`."""
    table = read_parquet(path)
    if clock not in table.column_names:
        raise DataError(f"{path} must have a column {clock}; restore the file")
    column = table[clock]
    with parsing(path, f"have times in column {clock}"):
        if _is_number(column.type):
            at = pa.array(epoch_ns(column.to_numpy()))
        else:
            at = column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64())
    return filter_window(table.append_column("at", at), "at", start_ns, end_ns)


def _build_label(fault: _Fault) -> dict[str, Any]:
    components = fault.components
    kind = "Pod" if fault.is_pod else "Service"
    cause = build_cause(components[0], kind=kind, name=fault.names[0]) | {"accepted": components}
    return {
        "fault": fault.kind,
        "targets": components,
        "root_causes": [cause],
        "fault_type": fault.category,
        "inject_start": fault.start_ns,
        "parameters": {"instances": list(fault.names)},
    }


def _check_health(others: Sequence[_Fault]) -> Mapping[str, Any]:
    names = ", ".join(f"{other.kind} in {other.names[0]} until {utc_text(other.end_ns)}" for other in others)
    detail = f"other faults: {names}" if others else "no other fault"
    return build_evidence("health", "view before the onset", detail, passed=not others)
