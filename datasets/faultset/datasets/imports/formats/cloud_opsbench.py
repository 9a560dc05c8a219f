"""Import Kubernetes incidents of Online Boutique and Train Ticket from Cloud-OpsBench, if they have metrics over time.

Most cases are the output of `kubectl` at one moment, without a healthy time; they cannot become episodes. Times have no
zone and are eight hours ahead of UTC. The source does not record when it injected a fault, only when its alert rules
fired; the onset is the earliest alert.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import (
    Column,
    Ints,
    csv_header,
    long_metrics,
    number_matrix,
    parsing,
    read_csv,
)
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_gauge_roles,
    reference_end,
    report_issues,
)

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
        root = unpack(path)
        folders = sorted(file.parent for file in root.rglob("metadata.json") if (file.parent / "raw_data").is_dir())
        chosen = [folder for folder in folders if (folder / "raw_data" / "metrics.csv").is_file()]
        report_issues(partial(_find_left_out, len(folders) - len(chosen)))
        if not chosen:
            raise DataError(f"{path} holds no case with raw_data/metrics.csv; give the folder `benchmark`")
        return [Case(key="/".join(folder.parts[-3:]), paths=(folder,), has_fault=True) for folder in chosen]

    def load(self, case: Case) -> ForeignEpisode:
        folder = case.paths[0]
        files = tuple(folder / name for name in ("metadata.json", "raw_data/alert.json", "raw_data/metrics.csv"))
        app, label = _read_truth(files[0])
        onset = _read_first_alert(files[1])
        times, columns = _read_metrics(files[2])
        step = int(np.median(np.diff(times))) if len(times) > 1 else SECOND_NS
        start, end = int(times[0]), int(times[-1]) + step
        services = sorted({str(service) for service, _, _ in columns})
        if (name := label["targets"][0]) not in services:
            raise DataError(f"{case.key}: {name}, the object at fault, has no metrics; leave the case out")
        if not start < onset < end:
            raise DataError(f"{case.key}: the first alert must be within the metrics; leave the case out")
        return ForeignEpisode(
            app=app,
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, onset, origin=case.key),
            services=tuple(services),
            workload_entry=next((name for name in ("frontend", "ts-ui-dashboard") if name in services), ""),
            source_intervals_s={"metrics": step / SECOND_NS},
            metric_roles=METRIC_ROLES,
            tables={"metrics": lambda: [long_metrics(times, columns)]},
            label=label | {"inject_start": onset},
            inputs=files,
        )


def _find_left_out(count: int) -> Iterable[DataIssue]:
    if count:
        problem = f"{count_text(count, 'case')} without raw_data/metrics.csv: only the state at one moment is recorded."
        yield DataIssue("note", ".", problem, "They are left out, because they have no healthy time.")


def _read_truth(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the application and the fields of the label without the onset."""
    with parsing(path, "name fault_object and root_cause"):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        result, app = content["result"], str(content["namespace"])
        kind, _, name = str(result["fault_object"]).partition("/")
        kind = {"service": "Service", "app": "Service", "node": "Node", "pod": "Pod"}.get(kind, kind)
        fault, category = str(result["root_cause"]), str(result["fault_taxonomy"])
        difficulty = str(content.get("difficulty", ""))
    if not (name and fault):
        raise DataError(f"{path} must name a fault_object such as service/cart, and a root_cause; restore the file")
    level, fault_type = _FAULT_TYPES.get(fault, (None, category))
    if fault.startswith("code_"):
        level, fault_type = "Application", "Code Defect"
    return app, {
        "fault": fault,
        "targets": [name],
        "root_causes": [build_cause(name, kind=kind)],
        "system_level": level,
        "fault_type": fault_type,
        "parameters": {"difficulty": difficulty},
    }


def _read_first_alert(path: Path) -> int:
    """Return the start of the earliest alert."""
    with parsing(path, "list alerts with a time_range", "leave the case out"):
        ranges = [alert.get("time_range") for alert in json.loads(path.read_text(encoding="utf-8-sig"))["alerts"]]
        starts = [_read_local_time_ns(text.partition(" ~ ")[0]) for text in ranges if text]
    if not starts:
        raise DataError(f"{path} needs an alert with a time_range, because nothing else dates the fault; leave it out")
    return min(starts)


def _read_metrics(path: Path) -> tuple[Ints, list[Column]]:
    """Return the times and the columns, which are named `service-metric`."""
    names = csv_header(path)
    if names[0] != "time" or len(set(names)) < len(names) or not all("-" in name for name in names[1:]):
        raise DataError(f"{path} must have a column time and columns service-metric, once each; restore the file")
    table = read_csv(path, text=("time",), doubles=names[1:])
    with parsing(path, "have times such as 2025-12-25 15:42:15"):
        times = np.array([_read_local_time_ns(str(text)) for text in table["time"].to_pylist()], dtype=np.int64)
    if not len(times) or (np.diff(times) <= 0).any():
        raise DataError(f"{path} must have rows in time order; restore the file")
    samples = number_matrix({name: table[name] for name in names[1:]}, origin=str(path))
    columns = [name.rpartition("-")[::2] for name in names[1:]]
    return times, [(service, metric, row) for (service, metric), row in zip(columns, samples, strict=True)]


def _read_local_time_ns(text: str) -> int:
    moment = datetime.strptime(text.strip(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=LOCAL)
    return int(moment.timestamp()) * SECOND_NS
