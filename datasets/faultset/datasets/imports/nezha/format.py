"""Nezha's data as a format: each fault of a day becomes one episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.datasets.imports.archives import missing_of, names_in, unpacked
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode
from faultset.datasets.imports.nezha.days import (
    Day,
    case_key,
    collector_runs,
    find_days,
    has_fault_free_files,
    injected_ns,
    minutes_of,
    own_window,
    service_of,
)
from faultset.datasets.imports.nezha.healthy import healthy_time
from faultset.datasets.imports.nezha.labels import (
    ServiceTelemetry,
    answer_files,
    answer_of,
    app_of,
    evidence_of,
    first_sign_ns,
    label_of,
    read_answers,
)
from faultset.datasets.imports.nezha.quality import look
from faultset.datasets.imports.nezha.roles import METRIC_ROLES
from faultset.datasets.imports.nezha.rows import Part, Sources, log_rows, metric_rows, read_logs, read_spans, span_rows

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

    def data_issues(self, path: Path, cases: Sequence[Case]) -> Sequence[DataIssue]:
        """Look for the traps that are known of this data."""
        return [found for day in find_days(unpacked(path)) for found in look(day)]


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
