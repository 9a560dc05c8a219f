"""Import uview's runs of HotelReservation: one row per trace, and the times of injections.

A trace becomes one root span, with the participating services as an attribute. Metrics summarize the traces of each
service, second by second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.printable import first_line, quoted
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.format.incidents import ANOMALY
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import Ints, build_table, constant, filter_window, pc, read_csv
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignChunk,
    ForeignRecording,
    ImportFormat,
    build_cause,
    build_gauge_roles,
    report_issues,
    split_window,
)
from faultset.datasets.imports.telemetry.times import parse_time

FAULTS = "faults.csv"
CHUNK_NS = 1800 * SECOND_NS
_COLUMNS = {
    "trace_id": pa.string(),
    "duration_ms": pa.float64(),
    "start_us": pa.int64(),
    "end_us": pa.int64(),
    "error": pa.string(),
    "operation": pa.string(),
    "services": pa.string(),
}
METRIC_ROLES = build_gauge_roles(
    "uview",
    (
        ("traces_per_second", "traffic", "1/s", "mean", "traces in which the service took part"),
        ("trace_duration_mean_seconds", "latency", "s", "mean", "mean duration of these traces"),
        ("trace_duration_max_seconds", "latency", "s", "mean", "maximum duration of these traces"),
    ),
)
_SAMPLED = re.compile(r"(.+)_sampling_([\d.]+)x(\.csv(?:\.gz)?)")
_AFFIX = re.compile(r"^unknown_service:|(_process|_container)$")
_MAX_ROW_BYTES = 64 << 20


class UViewImport(ImportFormat):
    """A folder with `faults.csv` and `traces/<service>.csv.gz`."""

    name = "uview"
    title = "uview"
    layout = (
        (FAULTS, rf"(^|/){re.escape(FAULTS)}$"),
        ("traces/service.csv.gz", r"(^|/)traces/[^/]+\.csv(\.gz)?$"),
    )
    weakness = (
        "A trace is one span with the names of its services; metrics are computed from the traces. The kind of a fault "
        "is not recorded. Many faults leave no mark in the latency, and some overlap."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        root = unpack(path)
        cases = []
        for faults in sorted(root.rglob(FAULTS)):
            files = sorted(
                [*faults.parent.glob("traces/*.csv"), *faults.parent.glob("traces/*.csv.gz")], key=_build_sort_key
            )
            if files:
                names = tuple(file.name for file in files)
                key = faults.parent.resolve().name
                cases.append(Case(key=key, paths=(faults, files[0].parent), candidates=names, has_fault=True))
        if not cases:
            raise DataError(f"{path} holds no run of uview; give the folder that has {FAULTS} and traces")
        return cases

    def load(self, case: Case) -> ForeignRecording:
        faults, folder = case.paths
        traces = folder / case.candidates[0]
        match = _SAMPLED.fullmatch(traces.name)
        entry = service_name((match[1] if match else traces.name).split(".csv")[0])
        rows = _read_traces(traces)
        services = {entry}.union(*map(_split_names, pc.unique(rows["services"]).to_pylist()))
        start_ns = int(rows["start_us"][0].as_py()) * 1000 // SECOND_NS * SECOND_NS
        end_ns = (int(pc.max(rows["end_us"]).as_py()) * 1000 // SECOND_NS + 2) * SECOND_NS
        incidents = _read_faults(faults, services)
        report_issues(partial(_find_issues, incidents, start_ns, end_ns, case.key))
        return ForeignRecording(
            app=case.key,
            services=tuple(sorted(services)),
            chunks=partial(_chunks, rows, entry, start_ns, end_ns),
            incidents=tuple(row for row in incidents if start_ns <= row["inject_start"] < end_ns),
            source_intervals_s={"metrics": 1.0},
            workload_entry=entry,
            metric_roles=METRIC_ROLES,
            trace_share=min(1.0, float(match[2]) / 100) if match else 1.0,
            inputs=(faults, traces),
        )


def service_name(text: str) -> str:
    """Return the service that runs in a process or container, from its name.

    >>> service_name("unknown_service:geo_service_process"), service_name("geo_service_container")
    ('geo_service', 'geo_service')
    """
    return _AFFIX.sub("", _AFFIX.sub("", text.strip()))


def _split_names(names: str) -> list[str]:
    return [service_name(name) for name in names.split(";") if name.strip()]


def _build_sort_key(file: Path) -> tuple[float, str]:
    """Return a key that sorts complete traces first, then larger samples."""
    match = _SAMPLED.fullmatch(file.name)
    return (-float(match[2]) if match and match[2].replace(".", "", 1).isdigit() else -1e9, file.name)


def _read_traces(path: Path) -> pa.Table:
    try:
        rows = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=list(_COLUMNS), use_threads=False, block_size=_MAX_ROW_BYTES),
            convert_options=pacsv.ConvertOptions(column_types=_COLUMNS),
        )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} must have rows of {', '.join(_COLUMNS)}, but cannot be read ({first_line(error)}); "
            "restore the file"
        ) from error
    missing = [name for name in rows.column_names if rows[name].null_count]
    if not rows.num_rows or missing:
        raise DataError(
            f"{path} must have complete rows, but {'lacks ' + missing[0] if missing else 'has none'}; restore the file"
        )
    rows = rows.sort_by([("start_us", "ascending"), ("trace_id", "ascending")])
    starts, ends = rows["start_us"].to_numpy(), rows["end_us"].to_numpy()
    if starts[0] <= 0 or starts[-1] >= 1 << 51 or (ends < starts).any() or ends.max() >= 1 << 51:
        raise DataError(f"{path} must have traces in microseconds that end after they start; restore the file")
    return rows


def _read_faults(path: Path, services: set[str]) -> list[dict[str, Any]]:
    """Return the injections as incidents in time order."""
    columns = read_csv(path, text=("start", "end", "service"))
    if missing := [name for name in ("start", "end", "service") if name not in columns.column_names]:
        raise DataError(f"{path} must have the columns start, end and service, but lacks {', '.join(missing)}")
    incidents = []
    for number, row in enumerate(columns.to_pylist(), start=1):
        start_ns, end_ns, service = parse_time(row["start"]), parse_time(row["end"]), service_name(row["service"] or "")
        if start_ns is None or end_ns is None or start_ns >= end_ns or service not in services:
            raise DataError(
                f"row {number} of {path} must have a start, a later end and a service of the traces, but is "
                f"{quoted(', '.join(str(row[name]) for name in ('start', 'end', 'service')))}; correct the file"
            )
        incidents.append(
            {
                "fault": ANOMALY,
                "targets": [service],
                "root_causes": [build_cause(service)],
                "inject_start": start_ns,
                "recover_start": end_ns,
            }
        )
    return sorted(incidents, key=lambda row: row["inject_start"])


def _find_issues(incidents: Sequence[dict[str, Any]], start_ns: int, end_ns: int, location: str) -> Iterator[DataIssue]:
    outside = [row for row in incidents if not start_ns <= row["inject_start"] < end_ns]
    if outside:
        problem = (
            f"{len(outside)} of {len(incidents)} faults start outside the traces, which last from {utc_text(start_ns)} "
            f"to {utc_text(end_ns)}."
        )
        yield DataIssue("warning", location, problem, "They are not imported.")


def _chunks(rows: pa.Table, entry: str, start_ns: int, end_ns: int) -> Iterator[ForeignChunk]:
    starts_ns: Ints = rows["start_us"].to_numpy() * 1000
    metrics = _summarize_traces(rows)
    for first_ns, last_ns in split_window(start_ns, end_ns, CHUNK_NS):
        first, last = np.searchsorted(starts_ns, [first_ns, last_ns])
        spans = [_spans(rows.slice(first, last - first), entry, starts_ns[first:last])]
        chunk_metrics = [filter_window(metrics, "time", first_ns, last_ns)]
        tables = {"metrics": partial(list, chunk_metrics), "spans": partial(list, spans)}
        yield ForeignChunk(start_ns=first_ns, end_ns=last_ns, tables=tables)


def _summarize_traces(rows: pa.Table) -> pa.Table:
    """Return metrics of each service for each second: the number and the durations of the traces that ended in it.

    The time of a sample is the end of its second.
    """
    names = [_split_names(services) for services in rows["services"].to_pylist()]
    ends = rows["end_us"].to_numpy() * 1000
    seconds = (ends - rows["start_us"].to_numpy() * 1000) / SECOND_NS
    frame = pd.DataFrame({"time": (ends // SECOND_NS + 1) * SECOND_NS, "seconds": seconds, "service": names})
    grouped = frame.explode("service").dropna().groupby(["time", "service"])["seconds"]
    counts = grouped.count().unstack(fill_value=0).stack()
    pieces = []
    for row, table in zip(METRIC_ROLES, (counts, grouped.mean(), grouped.max()), strict=True):
        index = table.index
        columns = {
            "time": pa.array(index.get_level_values("time").to_numpy(), pa.int64()),
            "service": pa.array(index.get_level_values("service").tolist(), pa.string()),
            "metric": constant(row["metric"], len(table)),
            "kind": constant("gauge", len(table)),
            "value": pa.array(table.to_numpy(dtype=np.float64)),
        }
        pieces.append(build_table("metrics", columns))
    return pa.concat_tables(pieces)


def _spans(rows: pa.Table, entry: str, starts_ns: Ints) -> pa.Table:
    count = len(rows)
    failed = [text.strip().lower() == "true" for text in rows["error"].to_pylist()]
    attributes = [json.dumps({"services": _split_names(names)}) for names in rows["services"].to_pylist()]
    ids = rows["trace_id"].combine_chunks()
    return build_table(
        "spans",
        {
            "time": pa.array(starts_ns, pa.int64()),
            "trace_id": ids,
            "span_id": pa.array([text[:16] for text in ids.to_pylist()]),
            "service": constant(entry, count),
            "reported_service": constant(entry, count),
            "operation": rows["operation"],
            "kind": constant("server", count),
            "duration_ns": pa.array(rows["end_us"].to_numpy() * 1000 - starts_ns),
            "status": pa.array(["error" if is_failed else "unset" for is_failed in failed]),
            "attributes": pa.array(attributes),
        },
    )
