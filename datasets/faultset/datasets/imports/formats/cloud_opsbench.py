"""Import Kubernetes incidents of Online Boutique and Train Ticket from Cloud-OpsBench, if they have metrics over time.

Most cases are the output of `kubectl` at one moment, without a healthy time; they cannot become episodes. Times have no
zone and are eight hours ahead of UTC. The source does not record when it injected a fault, only when its alert rules
fired; the onset is the earliest alert.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import count_text, first_line
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import Column, Ints, csv_header, long_metrics, number_matrix, read_csv
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_gauge_roles,
    report_issues,
)
from faultset.datasets.imports.windows import reference_end

LOCAL = timezone(timedelta(hours=8))
METRIC_ROLES = build_gauge_roles(
    "cloud-opsbench",
    (
        ("cpu", "cpu", "1", "mean", "cores of a service, percent of a node"),
        ("mem", "memory", "By", "mean", "memory of a service, percent of a node"),
        ("cpu_cfs", "saturation", "1", "max", "share of throttled CPU periods"),
        ("rps", "traffic", "1/s", "sum", "requests per second"),
        ("success_rate", "errors", "1", "mean", "share of successful requests; low is bad"),
        ("network_*", "network", "1/s", "sum", "packets per second"),
        ("p*latency", "latency", "ms", "mean", "duration of requests; the prefix names the quantile"),
        ("fs_write_bytes", "disk", "By/s", "sum", "bytes written to files"),
        ("tcp_retans", "network", "1/s", "sum", "retransmitted segments of a node"),
    ),
)

_FAULT_TYPES = {
    "pod_cpu_overload": ("Operating System", "resource"),
    "pod_network_delay": ("Operating System", "Network/Storage Issue"),
    "node_network_delay": ("Operating System", "Network/Storage Issue"),
    "node_network_packet_loss": ("Operating System", "Network/Storage Issue"),
}
"""System level and fault type of the faults that other imports also have; others keep the source's words."""


@dataclass(frozen=True, kw_only=True)
class _Truth:
    """The answer in `metadata.json`."""

    app: str
    category: str
    kind: str
    name: str
    fault: str
    difficulty: str


class CloudOpsBenchImport(ImportFormat):
    """Cloud-OpsBench (arXiv 2603.00468): its folder `benchmark`, or an archive of it."""

    name = "cloud-opsbench"
    title = "Cloud-OpsBench"
    layout = (
        ("metadata.json", r"(^|/)metadata\.json$"),
        ("tool_cache.json", r"(^|/)tool_cache\.json$"),
        ("a folder raw_data", r"(^|/)raw_data(/|$)"),
    )
    weakness = (
        "There are metrics only; log lines have no times. The onset is the source's first alert, after the injection. "
        "Every case has a fault, and the time before it includes the start of the workload."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        """Return the cases with metrics."""
        root = unpack(path)
        folders = sorted(file.parent for file in root.rglob("metadata.json") if (file.parent / "raw_data").is_dir())
        chosen = [folder for folder in folders if (folder / "raw_data" / "metrics.csv").is_file()]
        report_issues(partial(_find_left_out, len(folders) - len(chosen)))
        if not chosen:
            raise DataError(f"{path} holds no case with raw_data/metrics.csv; give the folder `benchmark`")
        return [Case(key="/".join(folder.parts[-3:]), paths=(folder,), has_fault=True) for folder in chosen]

    def load(self, case: Case) -> ForeignEpisode:
        """Read a case."""
        folder = case.paths[0]
        files = (
            folder / "metadata.json",
            folder / "raw_data" / "alert.json",
            folder / "raw_data" / "metrics.csv",
        )
        truth = _read_truth(files[0])
        onset = _read_first_alert(files[1])
        times, columns = _read_metrics(files[2])
        step = int(np.median(np.diff(times))) if len(times) > 1 else SECOND_NS
        start, end = int(times[0]), int(times[-1]) + step
        services = sorted({str(service) for service, _, _ in columns})
        if truth.name not in services:
            raise DataError(f"{case.key}: {truth.name}, the object at fault, has no metrics; leave the case out")
        if not start < onset < end:
            raise DataError(f"{case.key}: the first alert must be within the metrics; leave the case out")
        level, fault_type = _FAULT_TYPES.get(truth.fault, (None, truth.category))
        if truth.fault.startswith("code_"):
            level, fault_type = "Application", "Code Defect"
        return ForeignEpisode(
            app=truth.app,
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, onset, origin=case.key),
            services=tuple(services),
            workload_entry=next((name for name in ("frontend", "ts-ui-dashboard") if name in services), ""),
            source_intervals_s={"metrics": step / SECOND_NS},
            metric_roles=METRIC_ROLES,
            tables={"metrics": lambda: [long_metrics(times, columns)]},
            label={
                "fault": truth.fault,
                "targets": [truth.name],
                "root_causes": [build_cause(truth.name, kind=truth.kind)],
                "system_level": level,
                "fault_type": fault_type,
                "inject_start": onset,
                "parameters": {"difficulty": truth.difficulty},
            },
            inputs=files,
        )


def _find_left_out(count: int) -> Iterable[DataIssue]:
    if count:
        problem = f"{count_text(count, 'case')} without raw_data/metrics.csv: the state at one moment."
        yield DataIssue("note", ".", problem, "They are left out, because they have no healthy time.")


def _read_truth(path: Path) -> _Truth:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        result = content["result"]
        kind, slash, name = str(result["fault_object"]).partition("/")
        kind = {"service": "Service", "app": "Service", "node": "Node", "pod": "Pod"}.get(kind, kind)
        truth = _Truth(
            app=str(content["namespace"]),
            category=str(result["fault_taxonomy"]),
            kind=kind,
            name=name,
            fault=str(result["root_cause"]),
            difficulty=str(content.get("difficulty", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} must name fault_object and root_cause ({error!r}); restore the file") from error
    if not (slash and name and truth.fault):
        raise DataError(f"{path} must name a fault_object such as service/cart, and a root_cause; restore the file")
    return truth


def _read_first_alert(path: Path) -> int:
    """Return the start of the earliest alert."""
    try:
        alerts = json.loads(path.read_text(encoding="utf-8-sig"))["alerts"]
        starts = [
            _read_local_time_ns(alert["time_range"].partition(" ~ ")[0]) for alert in alerts if alert.get("time_range")
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} must list alerts with a time_range ({first_line(error)}); leave the case out"
        ) from error
    if not starts:
        raise DataError(f"{path} needs an alert with a time_range, because nothing else dates the fault; leave it out")
    return min(starts)


def _read_metrics(path: Path) -> tuple[Ints, list[Column]]:
    """Return the times and the columns, which are named `service-metric`."""
    names = csv_header(path)
    if names[0] != "time" or len(set(names)) < len(names) or not all("-" in name for name in names[1:]):
        raise DataError(f"{path} must have a column time and columns service-metric, once each; restore the file")
    table = read_csv(path, text=("time",), doubles=names[1:])
    try:
        times = np.array([_read_local_time_ns(str(text)) for text in table["time"].to_pylist()], dtype=np.int64)
    except ValueError as error:
        raise DataError(
            f"{path} must have times such as 2025-12-25 15:42:15 ({first_line(error)}); restore it"
        ) from error
    if not len(times) or (np.diff(times) <= 0).any():
        raise DataError(f"{path} must have rows in the order of time; restore the file")
    samples = number_matrix({name: table[name] for name in names[1:]}, origin=str(path))
    return times, [_column(name, row) for name, row in zip(names[1:], samples, strict=True)]


def _column(name: str, samples: np.ndarray) -> Column:
    service, _, metric = name.rpartition("-")
    return service, metric, samples


def _read_local_time_ns(text: str) -> int:
    moment = datetime.strptime(text.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=LOCAL)
    return int(moment.timestamp()) * SECOND_NS
