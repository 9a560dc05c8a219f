"""Import Nezha: days with many short faults in Online Boutique and Train Ticket; each sampled minute is a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_gauge_roles,
    report_issues,
)
from faultset.datasets.imports.formats.nezha_days import (
    Day,
    ServiceTelemetry,
    answer_files,
    answer_of,
    app_of,
    case_key,
    collector_runs,
    evidence_of,
    fault_window,
    find_days,
    first_sign_ns,
    has_fault_free_files,
    injected_ns,
    label_of,
    minutes_of,
    read_answers,
    sample_times,
    service_of,
)
from faultset.datasets.imports.formats.nezha_rows import (
    Segment,
    Sources,
    healthy_time,
    log_rows,
    metric_rows,
    read_logs,
    read_metric_file,
    read_spans,
    span_rows,
)

_RECORD_END = '"}'


def find_issues(day: Day) -> Iterator[DataIssue]:
    """Yield the issues of a day."""
    yield from _find_fault_issues(day)
    yield from _find_missing_minutes(day)
    yield from _find_metric_issues(day)
    for kind in ("trace", "log"):
        yield from _find_row_issues(day, kind)
    names = sorted(path.name for path in day.reference_files("trace"))
    if not has_fault_free_files(day):
        yield DataIssue(
            "warning",
            f"construct_data/{day.name}",
            "The fault-free time has neither traces nor logs.",
            "The minutes before the day's other faults are the reference; logs are left out.",
        )
        return
    yield DataIssue(
        "note",
        f"construct_data/{day.name}",
        f"The only fault-free time is in {', '.join(names) or 'no trace file'}.",
        "It becomes the reference of all episodes of the day, moved to the start of the view.",
    )


def _find_fault_issues(day: Day) -> Iterator[DataIssue]:
    offsets_s = [
        int(fault["inject_timestamp"]) - injected_ns(fault) // SECOND_NS
        for fault in day.faults
        if fault["inject_timestamp"].isdigit()
    ]
    wrong = [seconds for seconds in offsets_s if seconds]
    if wrong:
        yield DataIssue(
            "warning",
            f"rca_data/{day.name}/{day.name}-fault_list.json",
            f"inject_timestamp disagrees with inject_time in {len(wrong)} of {len(offsets_s)} faults, "
            f"by {min(wrong)} to {max(wrong)} s.",
            "inject_time is used as UTC, because it matches the telemetry.",
        )


def _find_missing_minutes(day: Day) -> Iterator[DataIssue]:
    for fault in day.faults:
        minutes = minutes_of(injected_ns(fault))
        missing = [m for m in minutes if not day.minute_files("trace", (m,)) or not day.minute_files("log", (m,))]
        if missing and not (len(missing) == len(minutes) and has_fault_free_files(day)):
            yield DataIssue(
                "warning",
                case_key(day, fault),
                "Minutes around the fault lack traces or logs.",
                "The episode has the remaining rows.",
            )


def _find_metric_issues(day: Day) -> Iterator[DataIssue]:
    for path in day.metric_files(day.rca):
        try:
            frame = read_metric_file(path)
            offset_s = _find_offset_s(frame, path)
        except DataError:
            continue  # reading its cases reports the error
        if offset_s is not None:
            yield DataIssue(
                "warning",
                path.relative_to(day.root).as_posix(),
                f"TimeStamp is {offset_s} s away from Time.",
                "Time is used.",
            )


def _find_offset_s(frame: Any, path: Path) -> int | None:
    import pandas as pd

    if "TimeStamp" not in frame:
        return None
    stamps = pd.to_numeric(frame["TimeStamp"], errors="coerce").to_numpy(dtype=float)
    offsets_s = stamps - sample_times(frame["Time"], path) // SECOND_NS
    worst = offsets_s[np.nanargmax(np.abs(offsets_s))] if np.isfinite(offsets_s).any() else 0
    return int(worst) if abs(worst) > 1 else None


def _find_row_issues(day: Day, kind: str) -> Iterator[DataIssue]:
    import pandas as pd

    location = f"rca_data/{day.name}/{kind}"
    columns = ["TraceID", "SpanID"] if kind == "trace" else ["TimeUnixNano", "PodName", "SpanID", "Log"]
    frames = [
        pd.read_csv(path, usecols=columns, dtype=str, encoding="utf-8-sig", keep_default_na=False)
        for path in sorted((day.rca / kind).glob(f"*_{kind}.csv"))
    ]
    if not frames:
        yield DataIssue("warning", location, "There is no file.", "The table is empty.")
        return
    rows = pd.concat(frames, ignore_index=True)
    repeats = int(rows.duplicated().sum())
    if repeats:
        problem = f"{repeats} of {len(rows)} rows are repeated in one or more files."
        yield DataIssue("warning", location, problem, "Each is imported once.")
    if kind == "log":
        yield from _find_log_issues(rows, location)


def _find_log_issues(rows: Any, location: str) -> Iterator[DataIssue]:
    import pandas as pd

    torn = rows["Log"].str.count(r'"{0,2}stream"{0,2}:') != 1
    torn |= ~rows["Log"].str.endswith(_RECORD_END)
    if torn.any():
        yield DataIssue(
            "warning",
            location,
            f"{int(torn.sum())} lines were written by two writers at the same time.",
            "The complete record at the start of a line is imported; the torn rest is left out.",
        )
    inner = pd.to_datetime(rows["Log"].str.extract(r'"time":"([^"]+)"')[0], utc=True, errors="coerce", format="ISO8601")
    stamps = pd.to_numeric(rows["TimeUnixNano"], errors="coerce")
    valid = inner.notna() & stamps.notna()
    is_off = (inner[valid].astype("datetime64[ns, UTC]").astype("int64") - stamps[valid]).abs() > SECOND_NS
    if is_off.any():
        yield DataIssue(
            "warning",
            location,
            f"TimeUnixNano of {int(is_off.sum())} lines was read from the middle of their message.",
            "The container runtime's time is used.",
        )


_ROWS = (
    ("CpuUsage(m)", "cpu", "m{core}", "millicores in use"),
    ("CpuUsageRate(%)", "cpu", "%", "share of the CPU limit in use"),
    ("MemoryUsage(Mi)", "memory", "MiBy", "memory in use"),
    ("MemoryUsageRate(%)", "memory", "%", "share of the memory limit in use"),
    ("SyscallRead", "disk", "1", "read system calls in the minute"),
    ("SyscallWrite", "disk", "1", "write system calls in the minute"),
    ("NetworkReceiveBytes", "network", "By/s", "received"),
    ("NetworkTransmitBytes", "network", "By/s", "sent"),
    ("Pod*Latency*", "latency", "s", "quantile of request times, as client or server"),
    ("PodWorkload(Ops)", "traffic", "1/s", "requests"),
    ("PodSuccessRate(%)", "errors", "%", "share of successful requests; low is bad"),
    ("Node*", "other", "1", "metric of the node, reported once per pod"),
)

METRIC_ROLES = build_gauge_roles(
    "nezha",
    (
        (metric, role, unit, "sum" if role in ("traffic", "network") else "max", meaning)
        for metric, role, unit, meaning in _ROWS
    ),
)


STEP_S = 60.0


class NezhaImport(ImportFormat):
    """Nezha (FSE 2023): folders `rca_data` and `construct_data`, or an archive of them.

    A view is the day's fault-free time, which is the reference, followed by the sampled minutes of the fault: from one
    minute before the start of the injection's minute to two minutes after it. The fault-free time is moved so that the
    two are adjacent.
    Metrics are taken from the same times as logs and traces, although the source has them for the whole day, because
    other faults occur in between. If the fault-free files are missing, the minutes before the day's other faults
    replace them.
    """

    name = "nezha"
    title = "Nezha"
    layout = (
        ("a fault list (*-fault_list.json)", r"-fault_list\.json$"),
        ("a folder construct_data", r"(^|/)construct_data(/|$)"),
    )
    weakness = (
        "One fault-free minute serves a whole day. Faults are repeated two or three times, and only three minutes of "
        "each are recorded. Metrics have a step of 60 s. The onset is known to a minute."
    )

    def cases(self, path: Path) -> Sequence[Case]:
        """Return every fault of every day."""
        cases = []
        for day in find_days(unpack(path)):
            report_issues(partial(find_issues, day))
            for number, fault in enumerate(day.faults):
                cases.append(
                    Case(
                        key=case_key(day, fault),
                        paths=(day.rca, day.construct),
                        facts={"day": day.name, "root": str(day.root), "number": number},
                        has_fault=True,
                    )
                )
        if not cases:
            raise DataError(f"{path} holds no Nezha day; give the folder with rca_data and construct_data")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        """Read a fault."""
        day = next(d for d in find_days(Path(case.facts["root"])) if d.name == case.facts["day"])
        return _load(day, day.faults[case.facts["number"]])


def _fault_files(day: Day, fault: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    """Return the trace files and the log files of a fault's minutes."""
    minutes = minutes_of(injected_ns(fault))
    traces, logs = day.minute_files("trace", minutes), day.minute_files("log", minutes)
    if not traces and not logs and has_fault_free_files(day):
        raise DataError(
            f"{day.rca} needs traces or logs for {', '.join(minutes)}, the minutes of the {fault['inject_type']} "
            f"in {fault['inject_pod']}; restore them or leave the case out"
        )
    return traces, logs


def _load(day: Day, fault: Mapping[str, str]) -> ForeignEpisode:
    answers = read_answers(day.root)
    traces, logs = _fault_files(day, fault)
    inject_ns = injected_ns(fault)
    fault_start, fault_end = fault_window(inject_ns, collector_runs(day.rca))
    healthy = healthy_time(day, fault, fault_start)
    sampled = Segment(start_ns=fault_start, end_ns=fault_end)
    spans = read_spans(healthy.trace_files)
    service = service_of(fault["inject_pod"])
    answer = answer_of(fault, answers)
    sign = first_sign_ns(
        answer,
        _filter(service, (sampled,), ServiceTelemetry(logs=read_logs(logs), spans=read_spans(traces))),
        _filter(service, healthy.segments, ServiceTelemetry(logs=read_logs(healthy.log_files), spans=spans)),
    )
    services, calls = _list_services(day), _list_calls(spans)
    if service not in services:
        raise DataError(f"{day.rca} needs metrics for {fault['inject_pod']}, the pod with the fault; restore them")
    healthy_metrics = tuple((segment, healthy.folder) for segment in healthy.metric_segments)
    # Log lines are useless without healthy ones to compare with.
    fault_logs: Sources = ((sampled, logs),) if healthy.logs else ()
    return ForeignEpisode(
        app=app_of(day, answers),
        view_start_ns=fault_start - healthy.length_ns,
        view_end_ns=fault_end,
        reference_end_ns=fault_start,
        reference_moved_ns=healthy.segments[-1].moved_ns,
        services=services,
        calls=tuple(call for call in calls if set(call) <= set(services)),
        workload_entry=_find_entry(spans),
        source_intervals_s={"metrics": STEP_S},
        metric_roles=METRIC_ROLES,
        tables={
            "metrics": partial(metric_rows, day, (*healthy_metrics, (sampled, day.rca))),
            "spans": partial(span_rows, (*healthy.spans, (sampled, traces))),
            "logs": partial(log_rows, (*healthy.logs, *fault_logs)),
        },
        label=label_of(fault, answer, sign),
        evidence=tuple(evidence_of(fault, sign, healthy.origin)),
        inputs=(
            day.fault_list,
            *answer_files(day.root),
            *day.metric_files(day.rca),
            *(day.metric_files(healthy.folder) if healthy.folder != day.rca else ()),
            *traces,
            *healthy.trace_files,
            *(path for _, files in (*healthy.logs, *fault_logs) for path in files),
        ),
    )


def _filter(service: str, segments: Sequence[Segment], telemetry: ServiceTelemetry) -> ServiceTelemetry:
    """Return the telemetry of a service within some segments."""

    def inside(times: np.ndarray) -> np.ndarray:
        return np.any([segment.inside(times) for segment in segments], axis=0)

    lines, spans = telemetry.logs, telemetry.spans
    return ServiceTelemetry(
        logs=lines[(lines["service"] == service) & inside(lines["time"].to_numpy())],
        spans=spans[(spans["service"] == service) & inside(spans["start"].to_numpy())],
    )


def _list_services(day: Day) -> tuple[str, ...]:
    pods = {
        path.stem.removesuffix("_metric") for folder in (day.rca, day.construct) for path in day.metric_files(folder)
    }
    return tuple(sorted({service_of(pod) for pod in pods}))


def _list_calls(spans: Any) -> list[tuple[str, str]]:
    """Return the call graph of the fault-free time as (caller, callee)."""
    parents = spans[["TraceID", "SpanID", "service"]].rename(columns={"SpanID": "ParentID", "service": "caller"})
    calls = spans.merge(parents, on=["TraceID", "ParentID"])
    pairs = calls[calls["caller"] != calls["service"]][["caller", "service"]].drop_duplicates()
    return sorted(map(tuple, pairs.to_numpy().tolist()))


def _find_entry(spans: Any) -> str:
    roots = spans[spans["ParentID"] == "root"]["service"].value_counts()
    return str(roots.index[0]) if len(roots) else ""
