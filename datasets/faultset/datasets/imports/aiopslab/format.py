"""AIOpsLab's exports as a format: each becomes one episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.aiopslab.discovery import LABEL_FILE, Export, find_exports, read_label
from faultset.datasets.imports.aiopslab.rows import (
    log_rows,
    metric_rows,
    read_logs,
    read_metrics,
    read_spans,
    span_rows,
)
from faultset.datasets.imports.archives import names_in, unpacked
from faultset.datasets.imports.columns import csv_header, read_csv
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode
from faultset.datasets.imports.windows import reference_end
from faultset.datasets.kubectl.kinds import workload_of_pod

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

    def data_issues(self, path: Path, cases: Sequence[Case]) -> Sequence[DataIssue]:
        """Look for missing labels, duplicates, shifted clocks and cut-off logs."""
        return [found for export in find_exports(unpacked(path)) for found in _look(export)]


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
