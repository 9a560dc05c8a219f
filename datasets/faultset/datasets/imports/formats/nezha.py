"""Import Nezha: days with many short faults in Online Boutique and Train Ticket; each sampled minute is a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import unpack
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    ImportFormat,
    build_cause,
    build_evidence,
    build_gauge_roles,
    report_issues,
)
from faultset.datasets.imports.formats.nezha_files import (
    MINUTE_NS,
    SAMPLED_AFTER_NS,
    Day,
    Segment,
    ServiceTelemetry,
    Sources,
    answer_files,
    answer_of,
    app_of,
    case_key,
    collector_runs,
    fault_window,
    find_days,
    first_sign_ns,
    healthy_window,
    injected_ns,
    list_files,
    log_rows,
    metric_rows,
    minutes_of,
    read_answers,
    read_logs,
    read_metric_file,
    read_spans,
    sample_times,
    service_of,
    span_rows,
)

_RECORD_END = '"}'


def find_issues(day: Day) -> Iterator[DataIssue]:
    yield from _find_fault_issues(day)
    yield from _find_missing_minutes(day)
    yield from _find_metric_issues(day)
    for kind in ("trace", "log"):
        yield from _find_row_issues(day, kind)
    location = f"construct_data/{day.name}"
    if not day.has_fault_free_files:
        problem = "The fault-free time has neither traces nor logs."
        handling = "The minutes before the day's other faults are the reference; logs are left out."
        yield DataIssue("warning", location, problem, handling)
        return
    names = ", ".join(path.name for path in day.reference_files("trace"))
    problem = f"The only fault-free time is in {names or 'no trace file'}."
    handling = "It becomes the reference of all episodes of the day, moved to the start of the view."
    yield DataIssue("note", location, problem, handling)


def _find_fault_issues(day: Day) -> Iterator[DataIssue]:
    stated = [fault for fault in day.faults if fault["inject_timestamp"].isdigit()]
    offsets_s = [int(fault["inject_timestamp"]) - injected_ns(fault) // SECOND_NS for fault in stated]
    if wrong := [seconds for seconds in offsets_s if seconds]:
        location = f"rca_data/{day.name}/{day.name}-fault_list.json"
        problem = (
            f"inject_timestamp disagrees with inject_time in {len(wrong)} of {len(offsets_s)} faults, "
            f"by {min(wrong)} to {max(wrong)} s."
        )
        yield DataIssue("warning", location, problem, "inject_time is used as UTC, because it matches the telemetry.")


def _find_missing_minutes(day: Day) -> Iterator[DataIssue]:
    for fault in day.faults:
        minutes = minutes_of(injected_ns(fault))
        missing = [m for m in minutes if not day.minute_files("trace", (m,)) or not day.minute_files("log", (m,))]
        if missing and not (len(missing) == len(minutes) and day.has_fault_free_files):
            problem = "Minutes around the fault lack traces or logs."
            yield DataIssue("warning", case_key(day, fault), problem, "The episode has the remaining rows.")


def _find_metric_issues(day: Day) -> Iterator[DataIssue]:
    for path in list_files(day.rca, "metric"):
        with suppress(DataError):  # reading its cases reports the error
            frame = read_metric_file(path)
            if "TimeStamp" not in frame:
                continue
            stamps = pd.to_numeric(frame["TimeStamp"], errors="coerce").to_numpy(dtype=float)
            offsets_s = stamps - sample_times(frame["Time"], path) // SECOND_NS
            worst = offsets_s[np.nanargmax(np.abs(offsets_s))] if np.isfinite(offsets_s).any() else 0
            if abs(worst) > 1:
                location = path.relative_to(day.root).as_posix()
                yield DataIssue("warning", location, f"TimeStamp is {int(worst)} s away from Time.", "Time is used.")


def _find_row_issues(day: Day, kind: str) -> Iterator[DataIssue]:
    location = f"rca_data/{day.name}/{kind}"
    columns = ["TraceID", "SpanID"] if kind == "trace" else ["TimeUnixNano", "PodName", "SpanID", "Log"]
    frames = [
        pd.read_csv(path, usecols=columns, dtype=str, encoding="utf-8-sig", keep_default_na=False)
        for path in list_files(day.rca, kind)
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


def _find_log_issues(rows: pd.DataFrame, location: str) -> Iterator[DataIssue]:
    torn = (rows["Log"].str.count(r'"{0,2}stream"{0,2}:') != 1) | ~rows["Log"].str.endswith(_RECORD_END)
    if torn.any():
        problem = f"{int(torn.sum())} lines were written by two writers at the same time."
        handling = "The complete record at the start of a line is imported; the torn rest is left out."
        yield DataIssue("warning", location, problem, handling)
    inner = pd.to_datetime(rows["Log"].str.extract(r'"time":"([^"]+)"')[0], utc=True, errors="coerce", format="ISO8601")
    stamps = pd.to_numeric(rows["TimeUnixNano"], errors="coerce")
    valid = inner.notna() & stamps.notna()
    is_off = (inner[valid].astype("datetime64[ns, UTC]").astype("int64") - stamps[valid]).abs() > SECOND_NS
    if is_off.any():
        problem = f"TimeUnixNano of {int(is_off.sum())} lines was read from the middle of their message."
        yield DataIssue("warning", location, problem, "The container runtime's time is used.")


METRIC_ROLES = build_gauge_roles(
    "nezha",
    (
        ("CpuUsage(m)", "cpu", "m{core}", "max", "millicores in use"),
        ("CpuUsageRate(%)", "cpu", "%", "max", "share of the CPU limit in use"),
        ("MemoryUsage(Mi)", "memory", "MiBy", "max", "memory in use"),
        ("MemoryUsageRate(%)", "memory", "%", "max", "share of the memory limit in use"),
        ("SyscallRead", "disk", "1", "max", "read system calls in the minute"),
        ("SyscallWrite", "disk", "1", "max", "write system calls in the minute"),
        ("NetworkReceiveBytes", "network", "By/s", "sum", "received"),
        ("NetworkTransmitBytes", "network", "By/s", "sum", "sent"),
        ("Pod*Latency*", "latency", "s", "max", "quantile of request times, as client or server"),
        ("PodWorkload(Ops)", "traffic", "1/s", "sum", "requests"),
        ("PodSuccessRate(%)", "errors", "%", "max", "share of successful requests; low is bad"),
        ("Node*", "other", "1", "max", "metric of the node, reported once per pod"),
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
        cases = []
        for day in find_days(unpack(path)):
            report_issues(partial(find_issues, day))
            paths = (day.rca, day.construct)
            for number, fault in enumerate(day.faults):
                facts = {"day": day.name, "root": str(day.root), "number": number}
                cases.append(Case(key=case_key(day, fault), paths=paths, facts=facts, has_fault=True))
        if not cases:
            raise DataError(f"{path} holds no Nezha day; give the folder with rca_data and construct_data")
        return cases

    def load(self, case: Case) -> ForeignEpisode:
        day = next(d for d in find_days(Path(case.facts["root"])) if d.name == case.facts["day"])
        fault = day.faults[case.facts["number"]]
        answers = read_answers(day.root)
        traces, logs = _fault_files(day, fault)
        fault_start, fault_end = fault_window(injected_ns(fault), collector_runs(day.rca))
        healthy = healthy_time(day, fault, fault_start)
        sampled = Segment(fault_start, fault_end)
        spans = read_spans(_join_files(healthy.spans))
        service = service_of(fault["inject_pod"])
        answer = answer_of(fault, answers)
        sign = first_sign_ns(
            answer,
            _filter_telemetry(service, (sampled,), ServiceTelemetry(logs=read_logs(logs), spans=read_spans(traces))),
            _filter_telemetry(
                service, healthy.segments, ServiceTelemetry(logs=read_logs(_join_files(healthy.logs)), spans=spans)
            ),
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
                "metrics": partial(metric_rows, (*healthy_metrics, (sampled, day.rca))),
                "spans": partial(span_rows, (*healthy.spans, (sampled, traces))),
                "logs": partial(log_rows, (*healthy.logs, *fault_logs)),
            },
            label=_build_label(fault, answer, sign),
            evidence=_build_evidence(fault, sign, healthy.origin),
            inputs=(
                day.fault_list,
                *answer_files(day.root),
                *list_files(day.rca, "metric"),
                *(list_files(healthy.folder, "metric") if healthy.folder != day.rca else ()),
                *traces,
                *_join_files(healthy.spans),
                *_join_files((*healthy.logs, *fault_logs)),
            ),
        )


def _fault_files(day: Day, fault: Mapping[str, str]) -> tuple[list[Path], list[Path]]:
    minutes = minutes_of(injected_ns(fault))
    traces, logs = day.minute_files("trace", minutes), day.minute_files("log", minutes)
    if not traces and not logs and day.has_fault_free_files:
        raise DataError(
            f"{day.rca} needs traces or logs for {', '.join(minutes)}, the minutes of the {fault['inject_type']} "
            f"in {fault['inject_pod']}; restore them or leave the case out"
        )
    return traces, logs


def _filter_telemetry(service: str, segments: Sequence[Segment], telemetry: ServiceTelemetry) -> ServiceTelemetry:
    """Return the telemetry of a service within some segments."""

    def inside(times: np.ndarray) -> np.ndarray:
        return np.any([segment.inside(times) for segment in segments], axis=0)

    lines, spans = telemetry.logs, telemetry.spans
    return ServiceTelemetry(
        logs=lines[(lines["service"] == service) & inside(lines["time"].to_numpy())],
        spans=spans[(spans["service"] == service) & inside(spans["start"].to_numpy())],
    )


def _list_services(day: Day) -> tuple[str, ...]:
    files = [path for folder in (day.rca, day.construct) for path in list_files(folder, "metric")]
    return tuple(sorted({service_of(path.stem.removesuffix("_metric")) for path in files}))


def _list_calls(spans: Any) -> list[tuple[str, str]]:
    """Return the call graph of the fault-free time as (caller, callee)."""
    parents = spans[["TraceID", "SpanID", "service"]].rename(columns={"SpanID": "ParentID", "service": "caller"})
    calls = spans.merge(parents, on=["TraceID", "ParentID"])
    pairs = calls[calls["caller"] != calls["service"]][["caller", "service"]].drop_duplicates()
    return sorted(map(tuple, pairs.to_numpy().tolist()))


def _find_entry(spans: Any) -> str:
    roots = spans[spans["ParentID"] == "root"]["service"].value_counts()
    return str(roots.index[0]) if len(roots) else ""


MIN_MINUTES, MAX_MINUTES = 2, 5


@dataclass(frozen=True, kw_only=True)
class HealthyReference:
    """Fault-free segments of a day, moved so that they end where the minutes of a fault begin."""

    folder: Path
    """Folder of the metrics."""
    spans: Sources
    logs: Sources
    length_ns: int
    origin: str
    """Origin of the segments in words."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment for segment, _ in self.spans)

    @property
    def metric_segments(self) -> tuple[Segment, ...]:
        """The fault-free segments of the metrics, which are sampled after the minute that they describe."""
        after = SAMPLED_AFTER_NS
        return tuple(Segment(s.start_ns + after, s.end_ns + after, s.moved_ns - after) for s in self.segments)


def _join_files(sources: Sources) -> list[Path]:
    return [path for _, paths in sources for path in paths]


def healthy_time(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Return the day's fault-free time or, if its files are missing, the minutes before the day's other faults.

    The reference ends at `end_ns` in the view.
    """
    traces, logs = day.reference_files("trace"), day.reference_files("log")
    if not traces and not logs:
        return _minutes_before_faults(day, fault, end_ns)
    spans, lines = read_spans(traces), read_logs(logs)
    times = pd.concat([spans["start"], lines["time"]])
    if times.empty:
        raise DataError(f"{day.construct} needs traces or logs of a fault-free minute; restore them")
    start, end = healthy_window(int(times.min()), int(times.max()), collector_runs(day.construct))
    segment = Segment(start, end, moved_ns=end_ns - end)
    return HealthyReference(
        folder=day.construct,
        spans=((segment, traces),),
        logs=((segment, logs),),
        length_ns=end - start,
        origin=f"the fault-free time of the day, moved by {segment.moved_ns} ns",
    )


def _minutes_before_faults(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Join the minutes before the other faults of the day that are nearest in time to this one.

    If the minutes of the fault have traces, only minutes with traces are used, so that healthy rates do not come from
    minutes without recorded spans.
    """
    runs = collector_runs(day.rca)
    fault_ns = injected_ns(fault)
    has_traces = bool(day.minute_files("trace", minutes_of(fault_ns)))
    minutes: list[tuple[int, int, list[Path]]] = []
    for other in day.faults:
        inject_ns = injected_ns(other)
        files = day.minute_files("trace", minutes_of(inject_ns)[:1])
        if inject_ns == fault_ns or (has_traces and not files):
            continue
        start_ns = fault_window(inject_ns, runs)[0]
        minutes.append((start_ns, min(start_ns + MINUTE_NS, inject_ns), files if has_traces else []))
    if len(minutes) < MIN_MINUTES:
        raise DataError(
            f"{day.construct} needs traces or logs of a fault-free minute, or {day.rca} at least {MIN_MINUTES} "
            "minutes before other faults; restore them"
        )
    nearest = sorted(minutes, key=lambda minute: abs(minute[0] - fault_ns))[:MAX_MINUTES]
    minutes = sorted(nearest, key=lambda minute: minute[0])
    first_ns = end_ns - len(minutes) * MINUTE_NS
    spans = tuple(
        (Segment(start, end, moved_ns=first_ns + number * MINUTE_NS - start), files)
        for number, (start, end, files) in enumerate(minutes)
    )
    return HealthyReference(
        folder=day.rca,
        spans=spans,
        logs=(),
        length_ns=len(minutes) * MINUTE_NS,
        origin=f"{len(minutes)} minutes before other faults of the day, joined",
    )


_FAULT_KINDS: dict[str, tuple[str, str]] = {
    "return": ("Application", "Code Defect"),
    "exception": ("Application", "Code Defect"),
    "cpu_contention": ("Operating System", "Operation Error"),
    "cpu_consumed": ("Application", "Code Defect"),
    "network_delay": ("Operating System", "Network/Storage Issue"),
}
"""Injected fault -> system level and fault type in faultset's terms."""


def _build_label(fault: Mapping[str, str], answer: str | None, sign_ns: int | None) -> dict[str, Any]:
    """Return the fields of the label; the onset is the earlier of `inject_time` and the first sign of the fault."""
    service = service_of(fault["inject_pod"])
    level, kind = _FAULT_KINDS.get(fault["inject_type"], (None, fault["inject_type"]))
    inject_ns = injected_ns(fault)
    metric = answer if answer and "_" not in answer else None
    return {
        "fault": fault["inject_type"],
        "targets": [service],
        "root_causes": [build_cause(service, kind="Pod", name=fault["inject_pod"], metric=metric)],
        "system_level": level,
        "fault_type": kind,
        "inject_start": inject_ns if sign_ns is None else min(inject_ns, sign_ns),
        "effective": sign_ns,
        "parameters": {**fault, "answer": answer},
    }


def _build_evidence(fault: Mapping[str, str], sign_ns: int | None, origin: str) -> tuple[Mapping[str, Any], ...]:
    events = "first request without the published order of events"
    detail = "no events, or their order never changes" if sign_ns is None else events
    return (
        build_evidence("injection", fault["inject_pod"], detail, passed=sign_ns is not None, time_ns=sign_ns),
        build_evidence("health", "reference", origin),
    )
