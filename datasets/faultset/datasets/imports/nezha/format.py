"""Nezha's data as a format: each fault of a day becomes one episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import names_in, unpacked
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode
from faultset.datasets.imports.nezha.days import (
    SAMPLED_AFTER_NS,
    Day,
    collector_runs,
    find_days,
    healthy_window,
    injected_ns,
    minutes_of,
    own_window,
    service_of,
)
from faultset.datasets.imports.nezha.labels import (
    ServiceTelemetry,
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
    the source has them for the whole day: other faults lie in between.
    """

    name = "nezha"
    title = "Nezha"
    weakness = (
        "one fault-free minute serves a whole day; faults are repeated two or three times and only three minutes of "
        "each are there; metrics have a step of 60 s; the onset is known to a minute"
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there are fault lists beside fault-free data."""
        names = names_in(path)
        return any(name.endswith("-fault_list.json") for name in names) and any("construct_data" in n for n in names)

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every fault of every day."""
        cases = []
        for day in find_days(unpacked(path)):
            for number, fault in enumerate(day.faults):
                cases.append(
                    Case(
                        key=f"{day.name}/{fault['inject_time'][11:]}/{fault['inject_pod']}/{fault['inject_type']}",
                        paths=(day.rca, day.construct),
                        facts={"day": day.name, "root": str(day.root), "number": number},
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

    def data_issues(self, path: Path) -> Sequence[DataIssue]:
        """Look for the traps that are known of this data."""
        return [found for day in find_days(unpacked(path)) for found in look(day)]


def _episode(day: Day, fault: Mapping[str, str]) -> ForeignEpisode:
    answers = read_answers(day.root)
    inject_ns = injected_ns(fault)
    minutes = minutes_of(inject_ns)
    traces, logs = day.minute_files("trace", minutes), day.minute_files("log", minutes)
    if not traces and not logs:
        raise DataError(
            f"{day.rca} has no traces and no logs of {', '.join(minutes)}, the minutes of the {fault['inject_type']} "
            f"in {fault['inject_pod']}; restore them or leave the case out"
        )
    own_start, own_end = own_window(inject_ns, collector_runs(day.rca))
    healthy = _healthy(day)
    reference_ns = healthy[1] - healthy[0]
    moved = own_start - healthy[1]
    reference = Part(start_ns=healthy[0], end_ns=healthy[1], moved_ns=moved)
    # the sample that describes a minute is taken at its end, and moved back into the minute
    sampled = Part(
        start_ns=healthy[0] + SAMPLED_AFTER_NS, end_ns=healthy[1] + SAMPLED_AFTER_NS, moved_ns=moved - SAMPLED_AFTER_NS
    )
    own = Part(start_ns=own_start, end_ns=own_end)
    spans = read_spans(day.reference_files("trace"))
    service = service_of(fault["inject_pod"])
    answer = answer_of(fault, answers)
    shown = ServiceTelemetry(logs=read_logs(day.reference_files("log")), spans=spans)
    sign = first_sign_ns(
        answer,
        _of(service, own, ServiceTelemetry(logs=read_logs(logs), spans=read_spans(traces))),
        _of(service, Part(start_ns=healthy[0], end_ns=healthy[1]), shown),
    )
    services, calls = _services(day), _calls(spans)
    if service not in services:
        raise DataError(f"{day.rca} has no metrics of {fault['inject_pod']}, where the fault was; restore them")
    span_sources: Sources = ((reference, day.reference_files("trace")), (own, traces))
    log_sources: Sources = ((reference, day.reference_files("log")), (own, logs))
    return ForeignEpisode(
        app=app_of(day, answers),
        view_start_ns=own_start - reference_ns,
        view_end_ns=own_end,
        reference_end_ns=own_start,
        reference_moved_ns=moved,
        services=services,
        calls=tuple(call for call in calls if set(call) <= set(services)),
        workload_entry=_entry(spans),
        source_intervals_s={"metrics": STEP_S},
        metric_roles=METRIC_ROLES,
        tables={
            "metrics": partial(metric_rows, day, ((sampled, day.construct), (own, day.rca))),
            "spans": partial(span_rows, span_sources),
            "logs": partial(log_rows, log_sources),
        },
        label=label_of(fault, answer, sign),
        evidence=tuple(evidence_of(fault, sign, f"telemetry from {_clock(healthy[0])} on, moved by {moved} ns")),
    )


def _healthy(day: Day) -> tuple[int, int]:
    """Return the time that the fault-free files cover, in whole minutes of the collector."""
    import pandas as pd

    spans, logs = read_spans(day.reference_files("trace")), read_logs(day.reference_files("log"))
    times = pd.concat([spans["start"], logs["time"]])
    if times.empty:
        raise DataError(f"{day.construct} has neither traces nor logs of a fault-free minute; restore them")
    return healthy_window(int(times.min()), int(times.max()), collector_runs(day.construct))


def _of(service: str, part: Part, seen: ServiceTelemetry) -> ServiceTelemetry:
    lines, spans = seen.logs, seen.spans
    return ServiceTelemetry(
        logs=lines[(lines["service"] == service) & part.inside(lines["time"].to_numpy())],
        spans=spans[(spans["service"] == service) & part.inside(spans["start"].to_numpy())],
    )


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


def _clock(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // SECOND_NS, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
