"""AIOpsLab's exports: each becomes one episode.

The observer names no fault. A file `label.json` in an export's folder does, for instance
`{"fault": "network_loss", "targets": ["user"], "inject_time": "2026-01-31T10:00:00Z"}`.

Traps: a trace across n services is there n times; `timestamp` of logs is local time taken for UTC, only `date` is
right; counters are raw; samples of a pod and of its containers have one name; the network's metrics carry their
interface in the name; windows asked for twice overlap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.format.schemas import LOGS, METRICS, SPANS, TIME
from faultset.datasets.imports.archives import names_in, unpacked
from faultset.datasets.imports.columns import absent, coded, constant, csv_header, epoch_ns, parse_numbers, read_csv
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, report_issues
from faultset.datasets.imports.spans import normalise_texts
from faultset.datasets.imports.windows import reference_end
from faultset.datasets.kubectl.kinds import workload_of_pod
from faultset.datasets.metrics.roles import builtin_catalogue

if TYPE_CHECKING:
    import pandas as pd

LABEL_FILE = "label.json"


@dataclass(frozen=True, kw_only=True)
class Export:
    """One export: everything that was observed in one session."""

    root: Path
    name: str

    @property
    def metric_files(self) -> list[Path]:
        """One file for each metric and each time it was asked for."""
        return sorted(self.root.rglob("kpi_*.csv"))

    @property
    def trace_files(self) -> list[Path]:
        """One file for each time traces were asked for."""
        return sorted(self.root.rglob("traces_*.csv"))

    @property
    def log_files(self) -> list[Path]:
        """One file for each time logs were asked for."""
        return sorted(self.root.rglob("log_*.csv"))

    @property
    def label_file(self) -> Path:
        """Where a label is looked for."""
        return self.root / LABEL_FILE


def find_exports(root: Path) -> list[Export]:
    """Return all exports below a folder: each `telemetry_data_*`, else each folder with output of an agent's calls."""
    folders = sorted(
        {path for path in [root, *root.rglob("telemetry_data_*")] if path.name.startswith("telemetry_data_")}
    )
    if not folders:
        outputs = [*root.rglob("metrics_output"), *root.rglob("trace_output")]
        folders = sorted({path.parent for path in outputs if path.is_dir()})
    return [
        Export(root=folder, name=folder.relative_to(root).as_posix() if folder != root else folder.name)
        for folder in folders
    ]


def read_label(export: Export) -> dict[str, Any]:
    """Return the fields of the label; without a file, an episode of which nothing is known.

    Raises
    ------
    DataError
        When the file is not JSON or says too little.
    """
    path = export.label_file
    if not path.is_file():
        return {"fault": None, "no_fault_kind": "unlabelled", "verdict": "unknown"}
    try:
        told: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        fault = told.get("fault")
        if fault is None:
            return {"fault": None, "no_fault_kind": "plain"}
        targets = [str(name) for name in told["targets"]]
        moment = datetime.fromisoformat(str(told["inject_time"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f'{path} is not a label ({error!r}); it needs "fault", "targets" and "inject_time" as ISO 8601'
        ) from error
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return {
        "fault": str(fault),
        "targets": targets,
        "root_causes": [
            {"kind": "Service", "name": name, "service": name, "accepted": [name], "metric": told.get("metric")}
            for name in targets
        ],
        "system_level": told.get("system_level"),
        "fault_type": told.get("fault_type"),
        "inject_start": round(aware.timestamp() * 1000) * SECOND_NS // 1000,
        "parameters": dict(told),
    }


_LEVEL = r"(?i)^\W*(?:\S+\s+){0,3}?(trace|debug|info|warn|warning|error|fatal|panic)\b"
_LEVELS = {"warn": "warning", "panic": "fatal"}


def read_metrics(path: Path) -> pd.DataFrame:
    """Return samples of one file with `time` in nanoseconds, `pod`, `metric` and `interface`."""
    frame = _read(path, ("timestamp", "cmdb_id", "kpi_name", "value"))
    stamps, values = parse_numbers(frame["timestamp"]), parse_numbers(frame["value"])
    known = ~np.isnan(stamps) & ~np.isnan(values)
    kept = frame[known].copy()
    kept["time"] = epoch_ns(stamps[known])
    kept["value"] = values[known]
    # Instances have dots of their own, pods have none.
    kept["pod"] = kept["cmdb_id"].str.rpartition(".")[2]
    family = path.stem.removeprefix("kpi_")
    named = kept["kpi_name"].str.startswith(family + ".")
    kept["metric"] = kept["kpi_name"].mask(named, family)
    kept["interface"] = kept["kpi_name"].str.removeprefix(family + ".").where(named)
    return kept


def read_spans(paths: Sequence[Path]) -> pd.DataFrame:
    """Return spans of all files, each once, with `time` and `duration_ns`."""
    wanted = (
        "trace_id", "span_id", "parent_span", "service_name", "operation_name", "start_time", "duration",
        "has_error", "response",
    )  # fmt: skip
    frame = _all(paths, wanted)
    for name in ("trace_id", "span_id", "parent_span"):
        frame[name] = normalise_texts(frame[name])
    frame = frame.drop_duplicates(["trace_id", "span_id"], ignore_index=True)
    frame["time"] = _whole(frame["start_time"], "start_time", paths)
    frame["duration_ns"] = _micro(frame["duration"])
    return frame


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Return lines of all files, each once, with `time` from `date`, `pod` and `container`."""
    import pandas as pd

    frames = []
    for path in paths:
        frame = _text(path)
        missing = {"date", "message"} - set(frame.columns)
        if missing or not {"pod_name", "cmdb_id"} & set(frame.columns):
            raise DataError(f"{path} has no columns date, message and pod_name; restore the file")
        named = frame["pod_name"] if "pod_name" in frame else frame["cmdb_id"].str.rpartition(".")[2]
        container = frame.get("container_name", named)
        identity = frame.get("log_id", pd.Series("", index=frame.index))
        frames.append(
            pd.DataFrame({
                "time": pd.to_datetime(frame["date"], utc=True, format="ISO8601", errors="coerce"),
                "pod": named,
                "container": container,
                "message": frame["message"],
                "log_id": identity,
            })
        )  # fmt: skip
    columns = ["time", "pod", "container", "message", "log_id"]
    whole = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    whole = whole[pd.notna(whole["time"])].drop_duplicates(ignore_index=True)
    whole["time"] = pd.to_datetime(whole["time"], utc=True).astype("datetime64[ns, UTC]").astype("int64")
    return whole


def metric_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `metrics`, metric by metric.

    A sample that was asked for twice, or that each container of a pod has, comes once, the largest.
    """
    import pandas as pd

    groups: dict[str, list[Path]] = {}
    for path in paths:
        groups.setdefault(path.stem, []).append(path)
    catalogue = builtin_catalogue()
    for _, files in sorted(groups.items()):
        frame = pd.concat([read_metrics(path) for path in files], ignore_index=True)
        # The label that told containers apart is lost; the pod's own cgroup is the largest of them.
        frame = frame.sort_values("value", ascending=False, kind="stable")
        frame = frame.drop_duplicates(["time", "cmdb_id", "kpi_name"]).sort_index().reset_index(drop=True)
        if frame.empty:
            continue
        names = {name: catalogue.find(name) for name in frame["metric"].unique()}
        kinds = {name: row.kind if row else _kind(name) for name, row in names.items()}
        labels = {
            name: canonical_json({"interface": name} if isinstance(name, str) else {})
            for name in frame["interface"].unique()
        }
        yield _table(
            METRICS,
            {
                "time": pa.array(frame["time"].to_numpy(), pa.int64()).cast(TIME),
                "service": _words(frame["pod"].map({pod: workload_of_pod(pod) for pod in frame["pod"].unique()})),
                "pod": _words(frame["pod"]),
                "container": absent(len(frame)),
                "metric": _words(frame["metric"]),
                "labels": _words(frame["interface"].map(labels).fillna("{}")),
                "kind": _words(frame["metric"].map(kinds)),
                "value": pa.array(frame["value"].to_numpy(dtype=float)),
            },
        )


def span_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `spans`."""
    import pandas as pd

    if not paths:
        return
    frame = read_spans(paths)
    code = pd.to_numeric(frame["response"], errors="coerce").round().astype("Int32")
    failed = frame["has_error"].str.lower() == "true"
    roots = frame["parent_span"].isin(["ROOT", ""])
    yield _table(
        SPANS,
        {
            "time": pa.array(frame["time"].to_numpy(), pa.int64()).cast(TIME),
            "trace_id": pa.array(frame["trace_id"], pa.string()),
            "span_id": pa.array(frame["span_id"], pa.string()),
            "parent_span_id": pa.array(frame["parent_span"].where(~roots), pa.string(), from_pandas=True),
            "service": _words(frame["service_name"]),
            "reported_service": _words(frame["service_name"]),
            "peer_service": absent(len(frame)),
            "pod": absent(len(frame)),
            "operation": _words(frame["operation_name"]),
            "kind": coded(("internal", "server"), _serves(frame)),
            "duration_ns": pa.array(frame["duration_ns"].to_numpy(), pa.int64()),
            "status": coded(("unset", "error"), np.asarray(failed, dtype=np.int32)),
            "status_code": pa.array(code, pa.int32(), from_pandas=True),
            "attributes": constant("{}", len(frame)).cast(pa.string()),
        },
    )


def log_rows(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the table `logs`."""
    if not paths:
        return
    frame = read_logs(paths)
    level = frame["message"].str.extract(_LEVEL)[0].str.lower().replace(_LEVELS)
    yield _table(
        LOGS,
        {
            "time": pa.array(frame["time"].to_numpy(dtype=np.int64), pa.int64()).cast(TIME),
            "service": _words(frame["pod"].map({pod: workload_of_pod(pod) for pod in frame["pod"].unique()})),
            "pod": _words(frame["pod"]),
            "container": _words(frame["container"]),
            "level": _words(level),
            "message": pa.array(frame["message"], pa.string()),
            "trace_id": pa.nulls(len(frame), pa.string()),
            "span_id": pa.nulls(len(frame), pa.string()),
        },
    )


def _serves(frame: pd.DataFrame) -> np.ndarray:
    """Say which spans begin a service's part: their parent is of another service, or there is none."""
    import pandas as pd

    owner = pd.Series(frame["service_name"].to_numpy(), index=pd.MultiIndex.from_frame(frame[["trace_id", "span_id"]]))
    parents = pd.MultiIndex.from_arrays([frame["trace_id"], frame["parent_span"]])
    return (owner.reindex(parents).to_numpy() != frame["service_name"].to_numpy()).astype(np.int32)


def _kind(metric: str) -> str:
    return "counter" if metric.endswith(("_total", "_count", "_sum")) else "gauge"


def _micro(column: pd.Series) -> np.ndarray:
    return np.round(np.nan_to_num(parse_numbers(column)) * 1000).astype(np.int64)


def _whole(column: pd.Series, name: str, paths: Sequence[Path]) -> np.ndarray:
    try:
        return epoch_ns(column.astype("int64").to_numpy())
    except ValueError as error:
        raise DataError(f"{paths[0].parent} has traces whose {name} is no number ({error}); restore them") from error


def _all(paths: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    frames = [_read(path, columns) for path in paths]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(columns), dtype=str)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    frame = _text(path)
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise DataError(f"{path} has no columns {', '.join(missing)}; restore the file")
    return frame[list(columns)]


def _text(path: Path) -> pd.DataFrame:
    """Return a file as text, without repeated headers and without the index that was written along."""
    from faultset.datasets.imports.columns import csv_header

    header = [name for name in csv_header(path) if name]
    frame: Any = read_csv(path, columns=header, text=header, newlines=True).to_pandas().fillna("")
    first = header[-1]
    return frame[frame[first] != first].reset_index(drop=True)


def _words(column: pd.Series) -> pa.DictionaryArray:
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def _table(schema: pa.Schema, columns: dict[str, pa.Array]) -> pa.Table:
    wanted = pa.schema([field for field in schema if field.name != "episode"])
    return pa.Table.from_arrays([columns[field.name].cast(field.type) for field in wanted], schema=wanted)


SLICE_NS = 300 * SECOND_NS
SLICE_LINES = 7500
"""The observer asks for logs in slices of five minutes and takes no more lines from each."""
FUSED = ("container_threads_max", "container_network_receive_errors_total")
"""Metrics that are never exported: a missing comma makes one name of two."""


class AIOpsLabImport:
    """The observer of AIOpsLab: folders `telemetry_data_*`, or what an agent's calls left in its working folder."""

    name = "aiopslab"
    title = "AIOpsLab"
    layout = (
        ("a folder telemetry_data_*, metrics_output or trace_output", r"(^|/)(telemetry_data_|(metrics|trace)_output)"),
        ("files kpi_*.csv, traces_*.csv or log_*.csv", r"(^|/)(kpi|traces|log)_[^/]*\.csv$"),
    )
    weakness = (
        "the exporter names no fault: without a label.json beside an export nothing is known, and an evaluation counts "
        "it as free of faults; logs are cut off at 7,500 lines in five minutes"
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there are files of metrics with the exporter's names, or its folders."""
        parts = [part for name in [path.name, *names_in(path)] for part in name.split("/")]
        return any(p.startswith("telemetry_data_") or p in ("metrics_output", "trace_output") for p in parts)

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every export."""
        cases = [
            Case(key=export.name, paths=(export.root,), has_fault=None if export.label_file.is_file() else False)
            for export in find_exports(unpacked(path))
        ]
        if not cases:
            raise DataError(f"{path} holds no export of AIOpsLab's observer; give a folder with telemetry_data_*")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        """Read one export."""
        export = Export(root=case.paths[0], name=case.key)
        label = read_label(export)
        times, services, step = _extent(export)
        if not len(times):
            raise DataError(f"{export.root} holds no telemetry with a time; leave it out")
        report_issues(partial(_look, export))
        start, end = int(times.min()), int(times.max()) + 1
        onset = label.get("inject_start")
        unknown = sorted(set(label.get("targets", ())) - services)
        if unknown:
            raise DataError(
                f"{export.label_file} names {', '.join(unknown)}, which has no telemetry; services are "
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


def _extent(export: Export) -> tuple[np.ndarray, set[str], float | None]:
    """Return the first and last time of each table, the services and the step of the metrics."""
    edges: list[int] = []
    pods: set[str] = set()
    services: set[str] = set()
    steps: list[float] = []
    for path in export.metric_files:
        frame = read_metrics(path)
        if len(frame):
            edges += [int(frame["time"].min()), int(frame["time"].max())]
            pods |= set(frame["pod"].unique())
            gaps = frame.sort_values("time").groupby(["cmdb_id", "kpi_name"])["time"].diff()
            steps += gaps[gaps > 0].unique().tolist()
    if export.trace_files:
        spans = read_spans(export.trace_files)
        edges += [int(spans["time"].min()), int(spans["time"].max())] if len(spans) else []
        services |= set(spans["service_name"].unique())
    if export.log_files:
        logs = read_logs(export.log_files)
        edges += [int(logs["time"].min()), int(logs["time"].max())] if len(logs) else []
        pods |= set(logs["pod"].unique())
    services |= {workload_of_pod(pod) for pod in pods}
    step = float(np.median(steps)) / SECOND_NS if steps else None
    return np.array(edges, dtype=np.int64), services, step


def _look(export: Export) -> Iterator[DataIssue]:
    if not export.label_file.is_file():
        yield DataIssue(
            severity="warning",
            place=export.name,
            found=f"there is no {LABEL_FILE}: whether and where there was a fault is not known",
            handling="the episode is called unlabelled, and an evaluation counts it as free of faults",
        )
    missing = [name for name in FUSED if not any(path.stem == f"kpi_{name}" for path in export.metric_files)]
    if export.metric_files and missing:
        yield DataIssue(
            severity="note",
            place=export.name,
            found=f"{' and '.join(missing)} are not there",
            handling="the exporter never asks for them",
        )
    rows = sum(len(read_csv(path, columns=["span_id"], text=["span_id"])) for path in export.trace_files)
    once = len(read_spans(export.trace_files)) if export.trace_files else 0
    if rows > once:
        yield DataIssue(
            severity="warning",
            place=export.name,
            found=f"{rows - once} of {rows} spans are there more than once",
            handling="each is taken once",
        )
    for path in export.log_files:
        yield from _look_at_logs(export, path)


def _look_at_logs(export: Export, path: Path) -> Iterator[DataIssue]:
    import pandas as pd

    lines = read_logs([path])
    place = f"{export.name}/{path.name}"
    if len(lines):
        most = int((lines["time"] // SLICE_NS).value_counts().max())
        if most >= SLICE_LINES:
            yield DataIssue(
                severity="warning",
                place=place,
                found=f"{most} lines lie in five minutes, the most that the exporter takes",
                handling="what is missing cannot be known",
            )
    if "timestamp" in csv_header(path):
        table = read_csv(path, columns=["timestamp", "date"], text=["timestamp", "date"], newlines=True).to_pandas()
        told = pd.to_numeric(table["timestamp"], errors="coerce")
        true = pd.to_datetime(table["date"], utc=True, format="ISO8601", errors="coerce")
        off = (told - true.astype("datetime64[ns, UTC]").astype("int64") / 1e9)[told.notna() & true.notna()]
        if len(off) and abs(off.median()) > 1:
            yield DataIssue(
                severity="warning",
                place=place,
                found=f"timestamp is {off.median() / 3600:+.1f} h away from date",
                handling="date is taken",
            )
