"""Nezha: Online Boutique and Train Ticket, one file for each sampled minute, days of many short faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import missing_of, names_in, unpacked
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, report_issues
from faultset.datasets.imports.formats.nezha_days import (
    Day,
    ServiceTelemetry,
    answer_files,
    answer_of,
    app_of,
    case_key,
    collector_runs,
    evidence_of,
    find_days,
    first_sign_ns,
    has_fault_free_files,
    injected_ns,
    label_of,
    minutes_of,
    own_window,
    read_answers,
    sample_times,
    service_of,
)
from faultset.datasets.imports.formats.nezha_rows import (
    Part,
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


def look(day: Day) -> Iterator[DataIssue]:
    """Yield the data_issues of a day."""
    yield from _fault_list(day)
    yield from _minutes(day)
    yield from _metrics(day)
    for kind in ("trace", "log"):
        yield from _rows(day, kind)
    reference = sorted(path.name for path in day.reference_files("trace"))
    if not has_fault_free_files(day):
        yield DataIssue(
            severity="warning",
            place=f"construct_data/{day.name}",
            found="the fault-free time has neither traces nor logs",
            handling="the minutes before the other faults of the day are the reference; logs are left out",
        )
        return
    yield DataIssue(
        severity="note",
        place=f"construct_data/{day.name}",
        found=f"the only fault-free time is in {', '.join(reference) or 'no file'}",
        handling="it is the reference of every episode of the day, moved to where the view begins",
    )


def _fault_list(day: Day) -> Iterator[DataIssue]:
    off = [
        int(fault["inject_timestamp"]) - injected_ns(fault) // SECOND_NS
        for fault in day.faults
        if fault["inject_timestamp"].isdigit()
    ]
    wrong = [seconds for seconds in off if seconds]
    if wrong:
        yield DataIssue(
            severity="warning",
            place=f"rca_data/{day.name}/{day.name}-fault_list.json",
            found=f"inject_timestamp disagrees with inject_time in {len(wrong)} of {len(off)} faults, "
            f"by {min(wrong)} to {max(wrong)} s",
            handling="inject_time is taken, as UTC: the telemetry of the fault stands there",
        )


def _minutes(day: Day) -> Iterator[DataIssue]:
    for fault in day.faults:
        minutes = minutes_of(injected_ns(fault))
        place = case_key(day, fault)
        missing = [m for m in minutes if not day.minute_files("trace", (m,)) or not day.minute_files("log", (m,))]
        if missing and not (len(missing) == len(minutes) and has_fault_free_files(day)):
            yield DataIssue(
                severity="warning",
                place=place,
                found="minutes around the fault lack traces or logs",
                handling="the episode has what is there",
            )


def _metrics(day: Day) -> Iterator[DataIssue]:
    for path in day.metric_files(day.rca):
        try:
            frame = read_metric_file(path)
            off = _lateness(frame, path)
        except DataError:
            continue  # its cases cannot be read either
        if off is not None:
            yield DataIssue(
                severity="warning",
                place=_place(day, path),
                found=f"TimeStamp is {off} s away from Time",
                handling="Time is taken",
            )


def _lateness(frame: Any, path: Path) -> int | None:
    import pandas as pd

    if "TimeStamp" not in frame:
        return None
    stamps = pd.to_numeric(frame["TimeStamp"], errors="coerce").to_numpy(dtype=float)
    off = stamps - sample_times(frame["Time"], path) // SECOND_NS
    worst = off[np.nanargmax(np.abs(off))] if np.isfinite(off).any() else 0
    return int(worst) if abs(worst) > 1 else None


def _rows(day: Day, kind: str) -> Iterator[DataIssue]:
    import pandas as pd

    files = sorted((day.rca / kind).glob(f"*_{kind}.csv"))
    frames = []
    for path in files:
        frame = pd.read_csv(path, usecols=_columns(kind), dtype=str, encoding="utf-8-sig", keep_default_na=False)
        frames.append(frame)
    if not frames:
        yield DataIssue(
            severity="warning",
            place=f"rca_data/{day.name}/{kind}",
            found="there is no file",
            handling="the table is empty",
        )
        return
    whole = pd.concat(frames, ignore_index=True)
    again = int(whole.duplicated().sum())
    place = f"rca_data/{day.name}/{kind}"
    if again:
        yield DataIssue(
            severity="warning",
            place=place,
            found=f"{again} of {len(whole)} rows stand in more than one file, or twice in one",
            handling="an episode has each row once",
        )
    if kind == "log":
        yield from _log_rows(whole, place)


def _columns(kind: str) -> list[str]:
    return ["TraceID", "SpanID"] if kind == "trace" else ["TimeUnixNano", "PodName", "SpanID", "Log"]


def _log_rows(rows: Any, place: str) -> Iterator[DataIssue]:
    import pandas as pd

    torn = rows["Log"].str.count(r'"{0,2}stream"{0,2}:') != 1
    torn |= ~rows["Log"].str.endswith(_RECORD_END)
    if torn.any():
        yield DataIssue(
            severity="warning",
            place=place,
            found=f"{int(torn.sum())} lines were written by two writers at once",
            handling="the whole record at their beginning is taken, the torn one after it is not",
        )
    inner = pd.to_datetime(rows["Log"].str.extract(r'"time":"([^"]+)"')[0], utc=True, errors="coerce", format="ISO8601")
    stamps = pd.to_numeric(rows["TimeUnixNano"], errors="coerce")
    known = inner.notna() & stamps.notna()
    off = (inner[known].astype("datetime64[ns, UTC]").astype("int64") - stamps[known]).abs() > SECOND_NS
    if off.any():
        yield DataIssue(
            severity="warning",
            place=place,
            found=f"TimeUnixNano of {int(off.sum())} lines was read from the middle of their message",
            handling="the container runtime's time is taken",
        )


def _place(day: Day, path: Path) -> str:
    return path.relative_to(day.root).as_posix()


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
    ("PodSuccessRate(%)", "errors", "%", "share of requests that went well; low is bad"),
    ("Node*", "other", "1", "of the node, seen from one of its pods"),
)

METRIC_ROLES: tuple[dict[str, str], ...] = tuple(
    {
        "source": "nezha",
        "metric": metric,
        "role": role,
        "unit": unit,
        "kind": "gauge",
        "combine": "sum" if role in ("traffic", "network") else "max",
        "meaning": meaning,
    }
    for metric, role, unit, meaning in _ROWS
)


STEP_S = 60.0


class NezhaImport:
    """Nezha (FSE 2023): folders `rca_data` and `construct_data`, or an archive of them.

    A view has the fault-free time that the source gives for the day, moved so that it ends where the sampled
    minutes of the fault begin, and then those minutes: one before the minute of the injection to two after it.
    The reference is the first part. Metrics are taken from the same stretches of time as logs and traces, although
    the source has them for the whole day: other faults lie in between. Where the files of the fault-free time are
    missing, the minutes before the other faults of the day take their place.
    """

    name = "nezha"
    title = "Nezha"
    layout = (
        ("a fault list (*-fault_list.json)", r"-fault_list\.json$"),
        ("a folder construct_data", r"(^|/)construct_data(/|$)"),
    )
    weakness = (
        "one fault-free minute serves a whole day; faults are repeated two or three times and only three minutes of "
        "each are there; metrics have a step of 60 s; the onset is known to a minute"
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there are fault lists beside fault-free data."""
        return not missing_of(self.layout, names_in(path))

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every fault of every day."""
        cases = []
        for day in find_days(unpacked(path)):
            report_issues(partial(look, day))
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
        """Read one fault."""
        day = next(d for d in find_days(Path(case.facts["root"])) if d.name == case.facts["day"])
        fault = day.faults[case.facts["number"]]
        return _episode(day, fault)


def _episode(day: Day, fault: Mapping[str, str]) -> ForeignEpisode:
    answers = read_answers(day.root)
    inject_ns = injected_ns(fault)
    minutes = minutes_of(inject_ns)
    traces, logs = day.minute_files("trace", minutes), day.minute_files("log", minutes)
    if not traces and not logs and has_fault_free_files(day):
        raise DataError(
            f"{day.rca} has no traces and no logs of {', '.join(minutes)}, the minutes of the {fault['inject_type']} "
            f"in {fault['inject_pod']}; restore them or leave the case out"
        )
    own_start, own_end = own_window(inject_ns, collector_runs(day.rca))
    healthy = healthy_time(day, fault, own_start)
    own = Part(start_ns=own_start, end_ns=own_end)
    spans = read_spans(healthy.trace_files)
    service = service_of(fault["inject_pod"])
    answer = answer_of(fault, answers)
    shown = ServiceTelemetry(logs=read_logs(healthy.log_files), spans=spans)
    sign = first_sign_ns(
        answer,
        _of(service, (own,), ServiceTelemetry(logs=read_logs(logs), spans=read_spans(traces))),
        _of(service, healthy.parts, shown),
    )
    services, calls = _services(day), _calls(spans)
    if service not in services:
        raise DataError(f"{day.rca} has no metrics of {fault['inject_pod']}, where the fault was; restore them")
    sampled = tuple((part, healthy.folder) for part in healthy.sampled)
    # lines of a few minutes say nothing where no healthy ones are there to compare with
    own_logs: Sources = ((own, logs),) if healthy.logs else ()
    return ForeignEpisode(
        app=app_of(day, answers),
        view_start_ns=own_start - healthy.length_ns,
        view_end_ns=own_end,
        reference_end_ns=own_start,
        reference_moved_ns=healthy.parts[-1].moved_ns,
        services=services,
        calls=tuple(call for call in calls if set(call) <= set(services)),
        workload_entry=_entry(spans),
        source_intervals_s={"metrics": STEP_S},
        metric_roles=METRIC_ROLES,
        tables={
            "metrics": partial(metric_rows, day, (*sampled, (own, day.rca))),
            "spans": partial(span_rows, (*healthy.spans, (own, traces))),
            "logs": partial(log_rows, (*healthy.logs, *own_logs)),
        },
        label=label_of(fault, answer, sign),
        evidence=tuple(evidence_of(fault, sign, healthy.told)),
        inputs=(
            day.fault_list,
            *answer_files(day.root),
            *day.metric_files(day.rca),
            *(day.metric_files(healthy.folder) if healthy.folder != day.rca else ()),
            *traces,
            *healthy.trace_files,
            *(path for _, files in (*healthy.logs, *own_logs) for path in files),
        ),
    )


def _of(service: str, parts: Sequence[Part], seen: ServiceTelemetry) -> ServiceTelemetry:
    lines, spans = seen.logs, seen.spans
    return ServiceTelemetry(
        logs=lines[(lines["service"] == service) & _inside(parts, lines["time"].to_numpy())],
        spans=spans[(spans["service"] == service) & _inside(parts, spans["start"].to_numpy())],
    )


def _inside(parts: Sequence[Part], times: np.ndarray) -> np.ndarray:
    return np.any([part.inside(times) for part in parts], axis=0)


def _services(day: Day) -> tuple[str, ...]:
    pods = {
        path.stem.removesuffix("_metric") for folder in (day.rca, day.construct) for path in day.metric_files(folder)
    }
    return tuple(sorted({service_of(pod) for pod in pods}))


def _calls(spans: Any) -> list[tuple[str, str]]:
    """Return who called whom in the fault-free time."""
    parents = spans[["TraceID", "SpanID", "service"]].rename(columns={"SpanID": "ParentID", "service": "caller"})
    both = spans.merge(parents, on=["TraceID", "ParentID"])
    pairs = both[both["caller"] != both["service"]][["caller", "service"]].drop_duplicates()
    return sorted(map(tuple, pairs.to_numpy().tolist()))


def _entry(spans: Any) -> str:
    roots = spans[spans["ParentID"] == "root"]["service"].value_counts()
    return str(roots.index[0]) if len(roots) else ""
