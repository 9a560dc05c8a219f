"""The healthy time that serves as the reference of a fault of a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from faultset.core.errors import DataError
from faultset.datasets.imports.nezha.days import (
    MINUTE_NS,
    SAMPLED_AFTER_NS,
    Day,
    collector_runs,
    healthy_window,
    injected_ns,
    minutes_of,
    own_window,
)
from faultset.datasets.imports.nezha.rows import Part, Sources, read_logs, read_spans

FEWEST_MINUTES, MOST_MINUTES = 2, 5


@dataclass(frozen=True, kw_only=True)
class HealthyReference:
    """Stretches of a day without a fault, moved to where they end with the beginning of a fault's minutes."""

    folder: Path
    """Where the metrics are."""
    spans: Sources
    logs: Sources
    length_ns: int
    told: str
    """Where it comes from, in words."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The stretches."""
        return tuple(part for part, _ in self.spans)

    @property
    def sampled(self) -> tuple[Part, ...]:
        """The stretches for metrics: the sample that describes a minute is taken at its end, and moved back into it."""
        return tuple(
            Part(
                start_ns=part.start_ns + SAMPLED_AFTER_NS,
                end_ns=part.end_ns + SAMPLED_AFTER_NS,
                moved_ns=part.moved_ns - SAMPLED_AFTER_NS,
            )
            for part in self.parts
        )

    @property
    def trace_files(self) -> list[Path]:
        """All files with spans."""
        return [path for _, paths in self.spans for path in paths]

    @property
    def log_files(self) -> list[Path]:
        """All files with log lines."""
        return [path for _, paths in self.logs for path in paths]


def healthy_time(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Return the fault-free time that the source gives; where its files are missing, the minutes before other faults.

    Parameters
    ----------
    end_ns
        Where it shall end in the view.
    """
    traces, logs = day.reference_files("trace"), day.reference_files("log")
    if not traces and not logs:
        return _minutes_before_faults(day, fault, end_ns)
    spans, lines = read_spans(traces), read_logs(logs)
    times = pd.concat([spans["start"], lines["time"]])
    if times.empty:
        raise DataError(f"{day.construct} has neither traces nor logs of a fault-free minute; restore them")
    start, end = healthy_window(int(times.min()), int(times.max()), collector_runs(day.construct))
    part = Part(start_ns=start, end_ns=end, moved_ns=end_ns - end)
    return HealthyReference(
        folder=day.construct,
        spans=((part, traces),),
        logs=((part, logs),),
        length_ns=end - start,
        told=f"the fault-free time of the day, moved by {part.moved_ns} ns",
    )


def _minutes_before_faults(day: Day, fault: Mapping[str, str], end_ns: int) -> HealthyReference:
    """Put the minutes before the other faults, those nearest in time, one after the other.

    Where the minutes of the fault have traces, only minutes with traces are taken, so that healthy rates are not those
    of minutes in which nothing was recorded.
    """
    runs = collector_runs(day.rca)
    own = injected_ns(fault)
    traced = bool(day.minute_files("trace", minutes_of(own)))
    chosen: list[tuple[int, int, list[Path]]] = []
    for other in day.faults:
        inject_ns = injected_ns(other)
        files = day.minute_files("trace", minutes_of(inject_ns)[:1])
        if inject_ns == own or (traced and not files):
            continue
        start_ns = own_window(inject_ns, runs)[0]
        chosen.append((start_ns, min(start_ns + MINUTE_NS, inject_ns), files if traced else []))
    if len(chosen) < FEWEST_MINUTES:
        raise DataError(
            f"{day.construct} has neither traces nor logs of a fault-free minute, and {day.rca} has no minutes before "
            "other faults; restore them"
        )
    nearest = sorted(chosen, key=lambda one: abs(one[0] - own))[:MOST_MINUTES]
    chosen = sorted(nearest, key=lambda one: one[0])
    first_ns = end_ns - len(chosen) * MINUTE_NS
    spans = tuple(
        (Part(start_ns=start, end_ns=end, moved_ns=first_ns + place * MINUTE_NS - start), files)
        for place, (start, end, files) in enumerate(chosen)
    )
    return HealthyReference(
        folder=day.rca,
        spans=spans,
        logs=(),
        length_ns=len(chosen) * MINUTE_NS,
        told=f"{len(chosen)} minutes before other faults of the day, one after the other",
    )
