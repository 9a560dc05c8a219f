"""Import OpenRCA; each half hour with records becomes one episode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.columns import csv_header
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_evidence,
    build_gauge_roles,
    reference_end,
    report_issues,
)
from faultset.datasets.imports.formats.openrca_rows import (
    AFTER_NS,
    BEFORE_NS,
    SLOT_NS,
    Record,
    System,
    Window,
    duration_factor,
    find_systems,
    label_of,
    log_rows,
    metric_rows,
    slot_name,
    slots,
    span_names,
    span_rows,
    telemetry_files,
)

_SAMPLE_ROWS = 20_000
_CONSISTENT_SHARE = 0.9


def find_issues(system: System) -> Iterator[DataIssue]:
    far = [r for r in system.records if r.stated_ns is None or abs(r.stated_ns - r.time_ns) > 60 * SECOND_NS]
    if far:
        problem = f"timestamp and datetime (UTC+8) disagree in {len(far)} of {len(system.records)} records."
        yield DataIssue("warning", f"{system.app}/record.csv", problem, "timestamp is used.")
    for start, records in slots(system):
        if len(records) > 1:
            problem = f"{len(records)} records fall into the same half hour."
            handling = "They become one episode with several root causes."
            yield DataIssue("note", f"{system.app}/{slot_name(start)}", problem, handling)
    for folder in sorted((system.root / "telemetry").glob("????_??_??")):
        missing = [kind for kind in ("metric", "trace", "log") if not any((folder / kind).glob("*.csv"))]
        if missing:
            problem = f"There are no {' or '.join(missing)} files."
            yield DataIssue("note", f"{system.app}/{folder.name}", problem, "These tables are empty.")
        for path in sorted((folder / "trace").glob("*.csv")):
            yield from _find_duration_issue(system, path)


def _find_duration_issue(system: System, path: Path) -> Iterator[DataIssue]:
    """Yield a warning if many spans begin after their parents end, because the assumed unit of durations is then too
    small."""
    try:
        names = span_names(csv_header(path))
        frame = pd.read_csv(path, dtype=str, nrows=_SAMPLE_ROWS, encoding="utf-8-sig", keep_default_na=False)
    except (DataError, ValueError, OSError):
        return  # reading its cases reports the error
    if not all(names[ours] for ours in ("trace", "span", "parent", "duration", "time")):
        return
    keys = {ours: frame[name] for ours, name in names.items() if name}
    spans = pd.DataFrame({"trace": keys["trace"], "span": keys["span"], "parent": keys["parent"]})
    spans["start"] = pd.to_numeric(keys["time"], errors="coerce") * 1e6
    spans["length"] = pd.to_numeric(keys["duration"], errors="coerce") * duration_factor(names)
    pairs = spans.merge(spans, left_on=["trace", "parent"], right_on=["trace", "span"], suffixes=("", "_up"))
    is_late = pairs["start"] > pairs["start_up"] + pairs["length_up"] + 1e6
    if len(pairs) and float(np.mean(is_late)) > 1 - _CONSISTENT_SHARE:
        location = f"{system.app}/{path.parent.parent.name}/{path.name}"
        problem = f"{int(is_late.sum())} of {len(pairs)} spans begin after their parent has ended."
        handling = "The durations are read in the usual unit, which may be wrong."
        yield DataIssue("warning", location, problem, handling)


_WORDS = (
    ("latency", "s", "max", ("mrt", "avg_time", "*atency*", "*duration*", "*esponseTime*", "*_time_*")),
    ("errors", "1", "mean", ("rr", "sr", "succee_rate", "succee_num", "*rror*", "*ail*")),
    ("traffic", "1", "sum", ("cnt", "num", "count", "*equests*", "*_tps*", "*QPS*")),
    ("cpu", "1", "max", ("*cpu*", "*CPU*", "*Cpu*")),
    ("memory", "1", "max", ("*mem*", "*Mem*", "*MEM*", "*heap*", "*Heap*", "*swap*", "*Swap*")),
    ("disk", "1", "max", ("*disk*", "*Disk*", "*DSK*", "*_fs_*", "*FileSystem*", "*blkio*", "*I/O*", "*IO*")),
    ("network", "1", "sum", ("*network*", "*Net*", "*tcp*", "*TCP*", "*bytes_*", "*sent*", "*received*")),
    ("threads", "1", "max", ("*thread*", "*Thread*", "*rocs*")),
    ("saturation", "1", "max", ("*onn*", "*ueue*", "*ession*", "*load*", "*Load*")),
)

METRIC_ROLES = build_gauge_roles(
    "openrca",
    (
        (pattern, role, unit, combine, "inferred from its name")
        for role, unit, combine, patterns in _WORDS
        for pattern in patterns
    ),
)

_GAP_NS = 300 * SECOND_NS
"""A longer time without samples at either end of a view means that the recording began or ended there."""


class OpenRCAImport(ImportFormat):
    """OpenRCA (ICLR 2025): folders with `record.csv` and `telemetry`, or an archive of them.

    Candidates are the source's components: nodes, containers, databases or services. Pods of Market count as their
    service. In all tables, `service` is the component.
    """

    name = "openrca"
    title = "OpenRCA"
    layout = (("record.csv", r"(^|/)record\.csv$"), ("a folder telemetry", r"(^|/)telemetry(/|$)"))
    weakness = (
        "There are no cases without a fault. The onset is known to a minute. The source does not state the unit of "
        "durations. Other faults may occur before the fault of a case."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        cases = []
        for system in find_systems(unpack(path)):
            report_issues(partial(find_issues, system))
            for start, _ in slots(system):
                key = f"{system.app}/{slot_name(start)}"
                cases.append(Case(key=key, paths=(system.root,), facts={"start": start}, has_fault=True))
        if not cases:
            raise DataError(f"{path} holds no OpenRCA system; give a folder with record.csv and telemetry")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        system = find_systems(case.paths[0])[0]
        start = case.facts["start"]
        records = dict(slots(system))[start]
        window = (start - BEFORE_NS, start + SLOT_NS + AFTER_NS)
        folders = system.day_folders(*window)
        if not folders:
            raise DataError(f"{case.key}: {system.root / 'telemetry'} needs a folder of that day; restore it")
        metrics = list(metric_rows(system, folders, window))
        onset = records[0].time_ns
        window = _trim_to_recording(window, metrics, onset)
        return ForeignEpisode(
            app=system.app,
            view_start_ns=window[0],
            view_end_ns=window[1],
            reference_end_ns=reference_end(*window, onset, origin=case.key),
            services=_candidates(system, metrics),
            workload_entry="",
            source_intervals_s={"metrics": _step_s(metrics)},
            metric_roles=METRIC_ROLES,
            tables={
                "metrics": lambda: metrics,
                "spans": partial(span_rows, system, folders, window),
                "logs": partial(log_rows, system, folders, window),
            },
            label=label_of(system, records),
            evidence=(_build_evidence(system, records, window),),
            inputs=(
                system.root / "record.csv",
                *(path for kind in ("metric", "trace", "log") for path in telemetry_files(folders, kind)),
            ),
        )


def _trim_to_recording(window: Window, metrics: Sequence[pa.Table], onset: int) -> Window:
    """Trim a window to the recording around the onset if the recording begins or ends inside it."""
    times = np.concatenate([table["time"].cast(pa.int64()).to_numpy() for table in metrics] or [np.zeros(0, np.int64)])
    step = round((_step_s(metrics) or 0) * SECOND_NS)
    if not step:
        return window
    first, last = int(times.min()) - step, int(times.max()) + step
    start = first if window[0] + _GAP_NS < first < onset else window[0]
    end = last if onset < last < window[1] - _GAP_NS else window[1]
    return start, end


def _candidates(system: System, metrics: Sequence[pa.Table]) -> tuple[str, ...]:
    """Return the components that have metrics in the view, even if all are infinite, or a record at any time."""
    chunks = [chunk for table in metrics for chunk in table["service"].chunks]
    components = {name for chunk in chunks for name in chunk.dictionary.to_pylist()} - {None}
    return tuple(sorted(components | {system.component_of(record.component) for record in system.records}))


def _step_s(metrics: Sequence[pa.Table]) -> float | None:
    """Return the median time between the samples of a series."""
    gaps: list[np.ndarray] = []
    for table in metrics:
        frame = table.select(["time", "pod", "metric"]).to_pandas()
        times = frame["time"].astype("int64")
        steps = times.groupby([frame["pod"], frame["metric"]], observed=True).diff()
        gaps.append(steps[steps > 0].to_numpy(dtype=float))
    joined = np.concatenate(gaps) if gaps else np.zeros(0)
    return float(np.median(joined)) / SECOND_NS if len(joined) else None


def _build_evidence(system: System, records: Sequence[Record], window: Window) -> dict[str, Any]:
    """Return an evidence row on other records in the view before the onset."""
    onset = records[0].time_ns
    others = [r for r in system.records if window[0] <= r.time_ns < onset and r not in records]
    names = ", ".join(f"{record.reason} in {record.component}" for record in others)
    detail = f"other records: {names}" if others else "no other record"
    return build_evidence("health", "view before the onset", detail, passed=not others)
