"""Import exports of AIOpsLab's observer; each becomes one episode.

The observer does not record the fault. Users can add a file `label.json` to an export, for instance
`{"fault": "network_loss", "targets": ["user"], "inject_time": "2026-01-31T10:00:00Z"}`.

Pitfalls of the data: a trace across n services is exported n times; `timestamp` of logs is local time read as UTC, so
`date` is used; counters are raw; samples of a pod and of its containers have the same name; network metrics have the
interface in their name; exported windows may overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import list_names, unpack
from faultset.datasets.imports.columns import (
    build_table,
    csv_header,
    encode_codes,
    encode_series,
    epoch_ns,
    infer_kinds_and_peers,
    normalise_id_series,
    parse_numbers,
    parsing,
    read_csv,
)
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    build_cause,
    reference_end,
    report_issues,
)
from faultset.datasets.kubectl.kinds import workload_of_pod
from faultset.datasets.metrics.roles import builtin_catalogue
from faultset.datasets.telemetry_formats.log_lines import read_level

LABEL_FILE = "label.json"


@dataclass(frozen=True, kw_only=True)
class Export:
    """Everything observed in one session: a file per query, and optionally a file with the label."""

    root: Path
    name: str

    @property
    def metric_files(self) -> list[Path]:
        return sorted(self.root.rglob("kpi_*.csv"))

    @property
    def trace_files(self) -> list[Path]:
        return sorted(self.root.rglob("traces_*.csv"))

    @property
    def log_files(self) -> list[Path]:
        return sorted(self.root.rglob("log_*.csv"))

    @property
    def label_file(self) -> Path:
        return self.root / LABEL_FILE


def find_exports(root: Path) -> list[Export]:
    """Return all exports below a folder: folders `telemetry_data_*`, or folders with the output of an agent's calls."""
    folders = {path for path in [root, *root.rglob("telemetry_data_*")] if path.name.startswith("telemetry_data_")}
    if not folders:
        outputs = [*root.rglob("metrics_output"), *root.rglob("trace_output")]
        folders = {path.parent for path in outputs if path.is_dir()}
    return [
        Export(root=folder, name=folder.relative_to(root).as_posix() if folder != root else folder.name)
        for folder in sorted(folders)
    ]


def read_label(export: Export) -> dict[str, Any]:
    """Return the fields of the label; an export without a label file is unlabelled."""
    path = export.label_file
    if not path.is_file():
        return {"fault": None, "no_fault_kind": "unlabelled", "verdict": "unknown"}
    expected = 'have "fault", "targets" and "inject_time" as ISO 8601'
    with parsing(path, expected, "correct it or remove it"):
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        fault = content.get("fault")
        if fault is None:
            return {"fault": None, "no_fault_kind": "plain"}
        targets = [str(name) for name in content["targets"]]
        moment = datetime.fromisoformat(str(content["inject_time"]))
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {
        "fault": str(fault),
        "targets": targets,
        "root_causes": [build_cause(name, metric=content.get("metric")) for name in targets],
        "system_level": content.get("system_level"),
        "fault_type": content.get("fault_type"),
        "inject_start": round(aware.timestamp() * 1000) * SECOND_NS // 1000,
        "parameters": dict(content),
    }


_LEVEL = r"(?i)^\W*(?:\S+\s+){0,3}?(trace|debug|info|warn|warning|error|fatal|panic)\b"


def read_metrics(path: Path) -> pd.DataFrame:
    """Return the samples of a file with `time` in nanoseconds, `pod`, `metric` and `interface`."""
    frame = _read_columns(path, ("timestamp", "cmdb_id", "kpi_name", "value"))
    stamps, values = parse_numbers(frame["timestamp"]), parse_numbers(frame["value"])
    valid = ~np.isnan(stamps) & ~np.isnan(values)
    samples = frame[valid].copy()
    samples["time"] = epoch_ns(stamps[valid])
    samples["value"] = values[valid]
    # Names of instances contain dots, names of pods do not.
    samples["pod"] = samples["cmdb_id"].str.rpartition(".")[2]
    family = path.stem.removeprefix("kpi_")
    has_interface = samples["kpi_name"].str.startswith(family + ".")
    samples["metric"] = samples["kpi_name"].mask(has_interface, family)
    samples["interface"] = samples["kpi_name"].str.removeprefix(family + ".").where(has_interface)
    return samples


def read_spans(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the distinct spans of all files with `time` and `duration_ns`."""
    columns = (
        "trace_id", "span_id", "parent_span", "service_name", "operation_name", "start_time", "duration",
        "has_error", "response",
    )  # fmt: skip
    frame = pd.concat([_read_columns(path, columns) for path in paths], ignore_index=True)
    for name in ("trace_id", "span_id", "parent_span"):
        frame[name] = normalise_id_series(frame[name])
    frame = frame.drop_duplicates(["trace_id", "span_id"], ignore_index=True)
    with parsing(paths[0].parent, "have numbers in start_time of its traces", "restore them"):
        frame["time"] = epoch_ns(frame["start_time"].astype("int64").to_numpy())
    frame["duration_ns"] = np.round(np.nan_to_num(parse_numbers(frame["duration"])) * 1000).astype(np.int64)
    return frame


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return the distinct lines of all files with `time` from `date`, `pod` and `container`."""
    frames = []
    for path in paths:
        frame = _read_text(path)
        missing = {"date", "message"} - set(frame.columns)
        if missing or not {"pod_name", "cmdb_id"} & set(frame.columns):
            raise DataError(f"{path} has no columns date, message and pod_name; restore the file")
        pod = frame["pod_name"] if "pod_name" in frame else frame["cmdb_id"].str.rpartition(".")[2]
        columns = {
            "time": pd.to_datetime(frame["date"], utc=True, format="ISO8601", errors="coerce"),
            "pod": pod,
            "container": frame.get("container_name", pod),
            "message": frame["message"],
            "log_id": frame.get("log_id", pd.Series("", index=frame.index)),
        }
        frames.append(pd.DataFrame(columns))
    whole = pd.concat(frames, ignore_index=True)
    whole = whole[pd.notna(whole["time"])].drop_duplicates(ignore_index=True)
    whole["time"] = pd.to_datetime(whole["time"], utc=True).astype("datetime64[ns, UTC]").astype("int64")
    return whole


def metric_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, one metric at a time.

    If overlapping queries or several containers yield samples with the same time and name, the largest is used.
    """
    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.stem, []).append(path)
    catalogue = builtin_catalogue()
    for _, files in sorted(groups.items()):
        frame = pd.concat([read_metrics(path) for path in files], ignore_index=True)
        # The container label is lost; the pod's cgroup has the largest value.
        frame = frame.sort_values("value", ascending=False, kind="stable")
        frame = frame.drop_duplicates(["time", "cmdb_id", "kpi_name"]).sort_index().reset_index(drop=True)
        if frame.empty:
            continue
        names = {name: catalogue.find(name) for name in frame["metric"].unique()}
        kinds = {
            name: row.kind if row else "counter" if name.endswith(("_total", "_count", "_sum")) else "gauge"
            for name, row in names.items()
        }
        labels = {
            name: canonical_json({"interface": name} if isinstance(name, str) else {})
            for name in frame["interface"].unique()
        }
        yield build_table(
            "metrics",
            {
                "time": pa.array(frame["time"].to_numpy(), pa.int64()),
                "service": _encode_services(frame["pod"]),
                "pod": encode_series(frame["pod"]),
                "metric": encode_series(frame["metric"]),
                "labels": encode_series(frame["interface"].map(labels).fillna("{}")),
                "kind": encode_series(frame["metric"].map(kinds)),
                "value": pa.array(frame["value"].to_numpy(dtype=float)),
            },
        )


def span_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    if not paths:
        return
    frame = read_spans(paths)
    code = pd.to_numeric(frame["response"], errors="coerce").round().astype("Int32")
    failed = frame["has_error"].str.lower() == "true"
    parents = frame["parent_span"].where(~frame["parent_span"].isin(["ROOT", ""]))
    service = encode_series(frame["service_name"])
    # Ids are unique within a trace only.
    kind, peer = infer_kinds_and_peers(
        pa.array(frame["trace_id"] + frame["span_id"], pa.string()),
        pa.array(frame["trace_id"] + parents, pa.string(), from_pandas=True),
        service,
    )
    yield build_table(
        "spans",
        {
            "time": pa.array(frame["time"].to_numpy(), pa.int64()),
            "trace_id": pa.array(frame["trace_id"], pa.string()),
            "span_id": pa.array(frame["span_id"], pa.string()),
            "parent_span_id": pa.array(parents, pa.string(), from_pandas=True),
            "service": service,
            "reported_service": service,
            "peer_service": peer,
            "operation": encode_series(frame["operation_name"]),
            "kind": kind,
            "duration_ns": pa.array(frame["duration_ns"].to_numpy(), pa.int64()),
            "status": encode_codes(("unset", "error"), np.asarray(failed, dtype=np.int32)),
            "status_code": pa.array(code, pa.int32(), from_pandas=True),
        },
    )


def log_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    if not paths:
        return
    frame = read_logs(paths)
    level = frame["message"].str.extract(_LEVEL)[0].map(read_level)
    yield build_table(
        "logs",
        {
            "time": pa.array(frame["time"].to_numpy(dtype=np.int64), pa.int64()),
            "service": _encode_services(frame["pod"]),
            "pod": encode_series(frame["pod"]),
            "container": encode_series(frame["container"]),
            "level": encode_series(level),
            "message": pa.array(frame["message"], pa.string()),
        },
    )


def _encode_services(pods: pd.Series) -> pa.DictionaryArray:
    return encode_series(pods.map({pod: workload_of_pod(pod) for pod in pods.unique()}))


def _read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    frame = _read_text(path)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(f"{path} has no columns {', '.join(missing)}; restore the file")
    return frame[list(columns)]


def _read_text(path: Path) -> pd.DataFrame:
    """Return a file as text, without repeated headers and without the index column."""
    header = [name for name in csv_header(path) if name]
    frame: Any = read_csv(path, columns=header, text=header, newlines=True).to_pandas().fillna("")
    first = header[-1]
    return frame[frame[first] != first].reset_index(drop=True)


SLICE_NS = 300 * SECOND_NS
SLICE_LINES = 7500
"""The observer exports at most this many log lines per slice of five minutes."""
NEVER_EXPORTED = ("container_threads_max", "container_network_receive_errors_total")
"""Metrics that are never exported, because a comma is missing between their names in the exporter."""


class AIOpsLabImport:
    """Exports of AIOpsLab's observer: folders `telemetry_data_*`, or an agent's working folder."""

    name = "aiopslab"
    title = "AIOpsLab"
    layout = (
        ("a folder telemetry_data_*, metrics_output or trace_output", r"(^|/)(telemetry_data_|(metrics|trace)_output)"),
        ("files kpi_*.csv, traces_*.csv or log_*.csv", r"(^|/)(kpi|traces|log)_[^/]*\.csv$"),
    )
    weakness = (
        "The exporter does not record the fault: without a label.json an export is unlabelled, and an evaluation "
        "leaves it out. Logs are cut off at 7,500 lines in five minutes."
    )

    def recognises(self, path: Path) -> bool:
        folders = [folder for name in [path.name, *list_names(path)] for folder in name.split("/")]
        return any(
            folder.startswith("telemetry_data_") or folder in ("metrics_output", "trace_output") for folder in folders
        )

    def cases(self, path: Path) -> Sequence[Case]:
        cases = [
            Case(key=export.name, paths=(export.root,), has_fault=None if export.label_file.is_file() else False)
            for export in find_exports(unpack(path))
        ]
        if not cases:
            raise DataError(f"{path} holds no export of AIOpsLab's observer; give a folder with telemetry_data_*")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        export = Export(root=case.paths[0], name=case.key)
        label = read_label(export)
        times, services, step = _measure_extent(export)
        if not times:
            raise DataError(f"{export.root} needs telemetry with times, but has none; leave it out")
        report_issues(partial(_find_issues, export))
        start, end = min(times), max(times) + 1
        onset = label.get("inject_start")
        unknown = sorted(set(label.get("targets", ())) - services)
        if unknown:
            raise DataError(
                f"{export.label_file} names {', '.join(unknown)}, which has no telemetry; choose from "
                f"{', '.join(sorted(services))}"
            )
        return ForeignEpisode(
            app="aiopslab",
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, onset, origin=case.key),
            services=tuple(sorted(services)),
            source_intervals_s={"metrics": step},
            tables={
                "metrics": partial(metric_rows, export.metric_files),
                "spans": partial(span_rows, export.trace_files),
                "logs": partial(log_rows, export.log_files),
            },
            label=label,
            inputs=(
                *export.metric_files,
                *export.trace_files,
                *export.log_files,
                *([export.label_file] if export.label_file.is_file() else []),
            ),
        )


def _measure_extent(export: Export) -> tuple[list[int], set[str], float | None]:
    """Return the first and last time of each table, the services, and the step of the metrics."""
    edges: list[int] = []
    pods: set[str] = set()
    services: set[str] = set()
    steps: list[float] = []
    for path in export.metric_files:
        frame = read_metrics(path)
        edges += _find_edges(frame)
        pods |= set(frame["pod"].unique())
        gaps = frame.sort_values("time").groupby(["cmdb_id", "kpi_name"])["time"].diff()
        steps += gaps[gaps > 0].unique().tolist()
    if export.trace_files:
        spans = read_spans(export.trace_files)
        edges += _find_edges(spans)
        services |= set(spans["service_name"].unique())
    if export.log_files:
        logs = read_logs(export.log_files)
        edges += _find_edges(logs)
        pods |= set(logs["pod"].unique())
    services |= {workload_of_pod(pod) for pod in pods}
    return edges, services, float(np.median(steps)) / SECOND_NS if steps else None


def _find_edges(frame: pd.DataFrame) -> list[int]:
    return [int(frame["time"].min()), int(frame["time"].max())] if len(frame) else []


def _find_issues(export: Export) -> Iterator[DataIssue]:
    name = export.name
    if not export.label_file.is_file():
        problem = f"There is no {LABEL_FILE}, so the fault is unknown."
        yield DataIssue("warning", name, problem, "The episode is unlabelled, and an evaluation leaves it out.")
    stems = {path.stem for path in export.metric_files}
    missing = [metric for metric in NEVER_EXPORTED if f"kpi_{metric}" not in stems]
    if stems and missing:
        yield DataIssue("note", name, f"{' and '.join(missing)} are missing.", "The exporter never queries them.")
    rows = sum(len(read_csv(path, columns=["span_id"], text=["span_id"])) for path in export.trace_files)
    distinct = len(read_spans(export.trace_files)) if export.trace_files else 0
    if rows > distinct:
        problem = f"{rows - distinct} of {count_text(rows, 'span')} are copies."
        yield DataIssue("warning", name, problem, "Each span is imported once.")
    for path in export.log_files:
        yield from _find_log_issues(export, path)


def _find_log_issues(export: Export, path: Path) -> Iterator[DataIssue]:
    lines = read_logs([path])
    location = f"{export.name}/{path.name}"
    most = int((lines["time"] // SLICE_NS).value_counts().max()) if len(lines) else 0
    if most >= SLICE_LINES:
        problem = f"One slice of five minutes has {most} lines, the exporter's limit."
        yield DataIssue("warning", location, problem, "Further lines may be missing.")
    if "timestamp" in csv_header(path):
        table = read_csv(path, columns=["timestamp", "date"], text=["timestamp", "date"], newlines=True).to_pandas()
        stamps = pd.to_numeric(table["timestamp"], errors="coerce")
        dates = pd.to_datetime(table["date"], utc=True, format="ISO8601", errors="coerce")
        offsets_s = (stamps - dates.astype("datetime64[ns, UTC]").astype("int64") / 1e9)[stamps.notna() & dates.notna()]
        if len(offsets_s) and abs(offsets_s.median()) > 1:
            problem = f"timestamp is {offsets_s.median() / 3600:+.1f} h away from date."
            yield DataIssue("warning", location, problem, "date is used.")
