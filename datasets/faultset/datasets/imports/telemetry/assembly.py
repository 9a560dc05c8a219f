"""Build episodes and recordings from staged rows: name services, complete spans and metrics, and cut windows."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from faultset.core.errors import DataError
from faultset.core.files import replace_text
from faultset.datasets.format.schemas import NAME, TABLES, TIME, time_column, without_episode
from faultset.datasets.imports.columns import encode_words, list_words, pc
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignChunk,
    ForeignEpisode,
    ForeignRecording,
    build_cause,
    reference_end,
    report_issues,
)
from faultset.datasets.imports.telemetry.completion import (
    Totals,
    complete_metrics,
    complete_spans,
    drop_exact_repeats,
    find_calls,
    interval_s,
)
from faultset.datasets.imports.telemetry.identity import Origin
from faultset.datasets.imports.telemetry.incidents import EpisodeWindow, TelemetryRecordingPlan
from faultset.datasets.imports.telemetry.rows import STAGED

PLAN = "plan.json"
RECORDING = "recording"
"""Key of the case of a recording."""


@dataclass(frozen=True, kw_only=True)
class AssemblyPlan:
    """How to turn the staged rows of a folder into episodes or into a recording."""

    app: str
    windows: tuple[EpisodeWindow, ...]
    """Time windows of the episodes; empty for a recording."""
    folders: Mapping[str, Sequence[tuple[str, int, int]]]
    """Table -> folders of the staged files that have rows of it, with their first and last times."""
    services: Mapping[str, str | None]
    """`Origin` as text -> its service."""
    names: Mapping[str, str | None]
    """Name of a called service in the data -> its service."""
    kinds: Mapping[str, str]
    """Metric -> its kind, if no file declares it."""
    calls: Sequence[Sequence[str]]
    """Declared calls, as caller and callee."""
    roles: Sequence[Mapping[str, str]]
    """Catalogue rows for metrics that the built-in catalogue lacks."""
    recording: TelemetryRecordingPlan | None = None

    def write(self, stage: Path) -> None:
        """Write the plan into a staging folder."""
        replace_text(stage / PLAN, json.dumps(asdict(self), sort_keys=True) + "\n")


def read_plan(stage: Path) -> AssemblyPlan:
    """Return the plan of a staging folder."""
    content = json.loads((stage / PLAN).read_text(encoding="utf-8"))
    windows = tuple(EpisodeWindow(**{**window, "causes": tuple(window["causes"])}) for window in content["windows"])
    recording = content["recording"] and TelemetryRecordingPlan(**content["recording"])
    return AssemblyPlan(**{**content, "windows": windows, "recording": recording})


class TelemetryImport:
    """Episodes or the recording of a staging folder."""

    name = "telemetry"
    title = "telemetry"
    weakness = "labels come from the incident file and are not checked"
    layout = (("a plan of staged telemetry", r"(^|/)plan\.json$"),)

    def recognises(self, path: Path) -> bool:
        """Return whether a folder holds staged telemetry."""
        return (path / PLAN).is_file()

    def cases(self, path: Path) -> Sequence[Case]:
        """Return the windows of the plan, or its recording."""
        plan = read_plan(path)
        if plan.recording is not None:
            has_fault = bool(plan.recording.incidents)
            return [Case(key=RECORDING, paths=(), facts={"stage": str(path)}, has_fault=has_fault)]
        return [
            Case(
                key=window.key,
                paths=(),
                facts={"stage": str(path), "number": number},
                has_fault=True if window.causes else None if window.kind == "unlabelled" else False,
            )
            for number, window in enumerate(plan.windows)
        ]

    def load(self, case: Case) -> ForeignEpisode | ForeignRecording:
        """Cut one episode from the staged rows, or prepare to read a recording chunk by chunk."""
        stage = Path(case.facts["stage"])
        plan = read_plan(stage)
        if plan.recording is not None:
            return _load_recording(stage, plan, plan.recording)
        window = plan.windows[case.facts["number"]]
        bounds = window.start_ns, window.end_ns
        tables = {table: _read_window_rows(stage, plan, table, bounds) for table in STAGED}
        tables = {table: rows for table, rows in tables.items() if len(rows)}
        if not tables:
            raise DataError(f"{window.key} contains no telemetry; correct its times or leave it out")
        spans = tables.get("spans")
        metrics = tables.get("metrics")
        services = _list_services(tables, window)
        calls, roots = find_calls(spans, services) if spans is not None else (set(), Counter())
        report_issues(lambda: _clock_issues(window, tables))
        finished = {table: _convert_rows(table, rows) for table, rows in tables.items()}
        return ForeignEpisode(
            app=plan.app,
            view_start_ns=window.start_ns,
            view_end_ns=window.end_ns,
            reference_end_ns=window.reference_end_ns
            or reference_end(window.start_ns, window.end_ns, window.onset_ns, origin=window.key),
            services=services,
            tables={table: partial(list, [rows]) for table, rows in finished.items()},
            label=_build_label(window),
            source_intervals_s={"metrics": None if metrics is None else interval_s(metrics)},
            calls=_merge_calls(plan, calls, services),
            workload_entry=_find_entry(roots),
            metric_roles=tuple(_select_roles(plan.roles, metrics)),
            inputs=(),
        )


def _load_recording(stage: Path, plan: AssemblyPlan, recording: TelemetryRecordingPlan) -> ForeignRecording:
    """Read the calls and the sampling interval; the other rows are read when the chunks are written."""
    causes = {target for row in recording.incidents for target in row["targets"]}
    services = tuple(sorted({name for name in plan.services.values() if name} | causes))
    calls, roots = set[tuple[str, str]](), Counter[str]()
    step_s: float | None = None
    for bounds in recording.windows():
        spans = _read_window_rows(stage, plan, "spans", bounds)
        if len(spans):
            window_calls, window_roots = find_calls(spans, services)
            calls |= window_calls
            roots += window_roots
        if step_s is None and len(metrics := _read_window_rows(stage, plan, "metrics", bounds)):
            step_s = interval_s(metrics)
    return ForeignRecording(
        app=plan.app,
        services=services,
        chunks=partial(_chunks, stage, plan, recording),
        incidents=tuple(recording.incidents),
        voids=tuple(recording.voids),
        source_intervals_s={"metrics": step_s},
        calls=_merge_calls(plan, calls, services),
        workload_entry=_find_entry(roots),
        metric_roles=tuple(plan.roles),
    )


def _chunks(stage: Path, plan: AssemblyPlan, recording: TelemetryRecordingPlan) -> Iterator[ForeignChunk]:
    totals: Totals = {}
    for bounds in recording.windows():
        tables = {table: partial(_read_converted_rows, stage, plan, table, bounds, totals) for table in STAGED}
        yield ForeignChunk(start_ns=bounds[0], end_ns=bounds[1], tables=tables)


def _read_converted_rows(
    stage: Path, plan: AssemblyPlan, table: str, bounds: tuple[int, int], totals: Totals
) -> Iterator[pa.Table]:
    rows = _read_window_rows(stage, plan, table, bounds, totals)
    if len(rows):
        yield _convert_rows(table, rows)


def _merge_calls(
    plan: AssemblyPlan, calls: set[tuple[str, str]], services: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return the calls seen in traces or declared in the mapping file."""
    declared = {(caller, callee) for caller, callee in plan.calls if {caller, callee} <= set(services)}
    return tuple(sorted(calls | declared))


def _find_entry(roots: Counter[str]) -> str:
    """Return the service that most traces enter; empty if the telemetry has no traces."""
    return roots.most_common(1)[0][0] if roots else ""


def _build_label(window: EpisodeWindow) -> dict[str, Any]:
    fields = dict(window.label)
    if not window.causes:
        unlabelled = window.kind == "unlabelled"
        fields |= {"fault": None, "no_fault_kind": "unlabelled" if unlabelled else "plain"}
        return fields | {"verdict": "unknown" if unlabelled else "none"}
    causes = [build_cause(name) for name in window.causes]
    return fields | {"targets": list(window.causes), "root_causes": causes, "inject_start": window.onset_ns}


def _list_services(tables: Mapping[str, pa.Table], window: EpisodeWindow) -> tuple[str, ...]:
    names = {name for rows in tables.values() for name in list_words(rows["service"])}
    return tuple(sorted({*names, *window.causes}))


def _read_window_rows(
    stage: Path, plan: AssemblyPlan, table: str, bounds: tuple[int, int], totals: Totals | None = None
) -> pa.Table:
    """Return the rows of a window with their services; `_convert_rows` converts them to the columns of our format."""
    start_ns, end_ns = bounds
    paths = [
        str(stage / folder / f"{table}.parquet")
        for folder, first_ns, last_ns in plan.folders.get(table, ())
        if first_ns < end_ns and last_ns >= start_ns
    ]
    if not paths:
        return STAGED[table].empty_table()
    field = pads.field("time")
    inside = (field >= start_ns) & (field < end_ns)
    files = pads.dataset(paths, schema=STAGED[table], format="parquet")
    rows = files.scanner(filter=inside, batch_readahead=2, fragment_readahead=1).to_table()
    if not len(rows):
        return rows
    rows = rows.unify_dictionaries().combine_chunks()
    rows = _resolve_origins(rows, plan, table)
    match table:
        case "metrics":
            return complete_metrics(rows, plan.kinds, totals)
        case "spans":
            return complete_spans(rows, plan.names)
        case "events" | "objects":
            return drop_exact_repeats(rows)
    return rows


def _resolve_origins(rows: pa.Table, plan: AssemblyPlan, table: str) -> pa.Table:
    """Replace the column `origin` with the service, pod, container and reported name."""
    column = encode_words(rows["origin"])
    texts = column.dictionary.to_pylist()
    origins = [Origin.parse(text) for text in texts]
    words = {
        "service": [plan.services.get(text) for text in texts],
        "pod": [origin.pod or None for origin in origins],
        "container": [origin.container or None for origin in origins],
        "reported_service": [origin.reported or origin.service.strip("-") for origin in origins],
    }
    for name, values in words.items():
        if name == "reported_service" and table != "spans":
            continue
        encoded = pa.array(values, pa.string()).dictionary_encode()
        rows = rows.append_column(name, encoded.take(column.indices).cast(NAME))
    return rows.drop_columns(["origin"])


def _convert_rows(table: str, rows: pa.Table) -> pa.Table:
    """Convert rows to the columns of our format."""
    schema = without_episode(TABLES[table])
    arrays = []
    for field in schema:
        is_time = field.name == time_column(table)
        column = rows["time" if is_time else field.name]
        column = column.cast(TIME) if pa.types.is_timestamp(field.type) else column
        if not field.nullable and column.null_count:
            column = pc.fill_null(column.cast(pa.string()), "")
        arrays.append(column.cast(field.type) if not pa.types.is_dictionary(field.type) else encode_words(column))
    return pa.Table.from_arrays(arrays, schema=schema)


def _clock_issues(window: EpisodeWindow, tables: Mapping[str, pa.Table]) -> Iterator[DataIssue]:
    """Yield an issue for tables that cover little of a window."""
    for table, rows in tables.items():
        times = rows["time"].to_numpy()
        covered = (int(times.max()) - int(times.min())) / (window.end_ns - window.start_ns)
        if len(times) > 1 and covered < 0.5:
            problem = f"{table} cover {covered:.0%} of the window."
            yield DataIssue("warning", window.key, problem, "The rest has no rows; check clocks and time zones.")


def _select_roles(roles: Sequence[Mapping[str, str]], metrics: pa.Table | None) -> Iterator[Mapping[str, str]]:
    """Yield the catalogue rows for the metrics of an episode."""
    if metrics is None:
        return
    present = set(list_words(metrics["metric"]))
    families = present | {re.sub(r"_(bucket|sum|count)$", "", name) for name in present}
    for row in roles:
        if row["metric"] in families or "*" in row["metric"]:
            yield row
