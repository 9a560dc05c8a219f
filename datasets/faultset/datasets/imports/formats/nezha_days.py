"""Days of Nezha's data, their faults and labels.

A day has a folder of minutes around its faults, a folder with fault-free time, and a list of faults. The collector
ran once a minute, some seconds after the full minute. The file `HH_MM` and the metric sample of `HH:MM` cover the time
from the previous run to the run at `HH:MM`.

`inject_time` is UTC, like the telemetry. `inject_timestamp` is the same instant in some rows. In others it is eight
hours early, because local time was read as UTC, and up to nine minutes off. The import only copies it to the
parameters of the label.

The published answers name two consecutive log lines or span starts between which the code was changed. The first
request in which they are no longer consecutive is the first sign of the fault. If it precedes `inject_time`, by up to
a minute, it is the onset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import Ints, read_csv
from faultset.datasets.imports.contract import build_cause

if TYPE_CHECKING:
    import pandas as pd

MINUTE_NS = 60 * SECOND_NS
LEAD_NS = 4 * SECOND_NS
"""Time from the start of a window to the collector's run, so that no sample falls on an edge."""
TAIL_NS = 10 * SECOND_NS
"""Time after the last run within which all pods are sampled."""
SAMPLED_AFTER_NS = LEAD_NS + TAIL_NS
"""Maximum time from the end of a window to the metric sample that describes its last minute."""
BEFORE, AFTER = 1, 2
"""Minutes of a view before and after the start of the minute of the injection."""

_FAULT_LIST = "-fault_list.json"
_POD = re.compile(r"-[a-z0-9]+-[a-z0-9]+$")


@dataclass(frozen=True, kw_only=True)
class Day:
    """A day: its faults, the minutes around them, and the fault-free time."""

    name: str
    root: Path
    rca: Path
    construct: Path
    faults: tuple[Mapping[str, str], ...]
    fault_list: Path

    def minute_files(self, kind: str, minutes: tuple[str, ...]) -> list[Path]:
        """Return the existing files of a kind (`log`, `trace`) for minutes `HH_MM`."""
        paths = [self.rca / kind / f"{minute}_{kind}.csv" for minute in minutes]
        return [path for path in paths if path.is_file()]

    def reference_files(self, kind: str) -> list[Path]:
        """Return all files of a kind in the fault-free folder."""
        return sorted((self.construct / kind).glob(f"*_{kind}.csv"))

    def metric_files(self, folder: Path) -> list[Path]:
        """Return one file per pod, sorted."""
        return sorted((folder / "metric").glob("*_metric.csv"))


def has_fault_free_files(day: Day) -> bool:
    """Return whether the fault-free time of a day has traces or logs."""
    return bool(day.reference_files("trace") or day.reference_files("log"))


def case_key(day: Day, fault: Mapping[str, str]) -> str:
    """Return the case key of a fault."""
    return f"{day.name}/{fault['inject_time'][11:]}/{fault['inject_pod']}/{fault['inject_type']}"


def find_days(root: Path) -> list[Day]:
    """Return all days below a folder, in order.

    Raises
    ------
    DataError
        A fault list cannot be read, or a day has no folder of fault-free data.
    """
    days = []
    for fault_list in sorted(root.rglob(f"*{_FAULT_LIST}")):
        rca = fault_list.parent
        base = rca.parent.parent
        construct = base / "construct_data" / rca.name
        if not construct.is_dir():
            raise DataError(f"{rca} needs fault-free data in {construct}, which is missing; restore the folder")
        faults = _read_fault_list(fault_list)
        days.append(Day(name=rca.name, root=base, rca=rca, construct=construct, faults=faults, fault_list=fault_list))
    return days


def service_of(pod: str) -> str:
    """Return the workload of a pod.

    Examples
    --------
    >>> service_of("ts-route-service-b6c59fb57-zv8dt")
    'ts-route-service'
    """
    return _POD.sub("", pod)


def injected_ns(fault: Mapping[str, str]) -> int:
    """Return the `inject_time` of a fault in UTC nanoseconds."""
    moment = datetime.strptime(fault["inject_time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS


def minutes_of(inject_ns: int) -> tuple[str, ...]:
    """Return the names of the minutes sampled for a fault.

    Examples
    --------
    >>> minutes_of(1674986284000000000)
    ('09_58', '09_59', '10_00')
    """
    first = inject_ns // MINUTE_NS
    return tuple(datetime.fromtimestamp((first + step) * 60, tz=UTC).strftime("%H_%M") for step in range(AFTER + 1))


def collector_runs(folder: Path) -> Ints:
    """Return the sorted times of collector runs from the metrics of the first pod; raise DataError without metrics."""
    files = sorted((folder / "metric").glob("*_metric.csv"))
    if not files:
        raise DataError(f"{folder / 'metric'} must hold metrics, but holds none; restore the folder")
    column = read_csv(files[0], columns=["Time"], text=["Time"])["Time"].to_pandas()
    return np.sort(sample_times(column[column != "Time"], files[0]))


def sample_times(column: Any, origin: Path) -> Ints:
    """Return the column `Time` as UTC nanoseconds; Go printed it with its monotonic clock.

    The column `TimeStamp` is not used, because it is 200,000,000 s late in some files.
    """
    import pandas as pd

    texts = column.astype(str).str.partition(" +")[0]
    times = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
    if times.isna().any():
        raise DataError(f"{origin} has an unreadable cell in column Time; restore the file")
    return times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()


def grid_phase(runs: Ints, around_ns: int) -> int:
    """Return the offset of windows within a minute: `LEAD_NS` before the collector run nearest to a time."""
    nearest = int(runs[np.abs(runs - around_ns).argmin()])
    return (nearest // SECOND_NS * SECOND_NS - LEAD_NS) % MINUTE_NS


def floor_to(time_ns: int, phase_ns: int) -> int:
    """Return the last window start at or before a time."""
    return (time_ns - phase_ns) // MINUTE_NS * MINUTE_NS + phase_ns


def healthy_window(first_ns: int, last_ns: int, runs: Ints) -> tuple[int, int]:
    """Return a window of whole minutes from the first to the last row, up to the collector's jitter."""
    start = floor_to(first_ns, grid_phase(runs, first_ns))
    minutes = -(-(last_ns + 1 - LEAD_NS - start) // MINUTE_NS)
    return start, start + max(1, minutes) * MINUTE_NS


def fault_window(inject_ns: int, runs: Ints) -> tuple[int, int]:
    """Return the time covered by the sampled minutes of a fault, from before the first to after the last run."""
    minute = inject_ns // MINUTE_NS * MINUTE_NS
    phase = grid_phase(runs, minute)
    # The collector runs a few seconds after the start of a minute.
    start = minute - BEFORE * MINUTE_NS + (phase if phase + LEAD_NS < MINUTE_NS else phase - MINUTE_NS)
    return start, start + (BEFORE + AFTER) * MINUTE_NS + TAIL_NS


def _read_fault_list(path: Path) -> tuple[Mapping[str, str], ...]:
    fields = ("inject_time", "inject_timestamp", "inject_pod", "inject_type")
    try:
        hours = json.loads(path.read_text(encoding="utf-8-sig"))
        faults = [fault for _, hour_faults in sorted(hours.items()) for fault in hour_faults]
        return tuple({name: str(fault[name]) for name in fields} for fault in faults)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a list of faults ({error!r}); restore the file") from error


KINDS: dict[str, tuple[str, str]] = {
    "return": ("Application", "Code Defect"),
    "exception": ("Application", "Code Defect"),
    "cpu_contention": ("Operating System", "Operation Error"),
    "cpu_consumed": ("Application", "Code Defect"),
    "network_delay": ("Operating System", "Network/Storage Issue"),
}
"""Injected fault -> system level and fault type in the terms of our faults."""

MAX_BROKEN = 0.05
"""Share of healthy requests that may lack the second event, because they were cut at the edge of a file."""
APPS = {"ts": "train-ticket", "hipster": "online-boutique"}


def answer_files(root: Path) -> list[Path]:
    """Return the files with the published answers."""
    return sorted((root / "construct_data").glob("root_cause_*.json"))


def read_answers(root: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return the answers of `root_cause_*.json` by namespace, service and fault."""
    answers = {}
    for path in answer_files(root):
        try:
            answers[path.stem.removeprefix("root_cause_")] = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} must be JSON ({error}); restore the file") from error
    return answers


def app_of(day: Day, answers: Mapping[str, Any]) -> str:
    """Return the application of a day: the one with most of the faulty services."""
    services = {service_of(fault["inject_pod"]) for fault in day.faults}
    hits = {namespace: len(services & answers[namespace].keys()) for namespace in answers}
    best = max(hits, key=lambda namespace: hits[namespace], default="")
    if not hits.get(best):
        return "train-ticket" if any(name.startswith("ts-") for name in services) else "online-boutique"
    return APPS.get(best, best)


def answer_of(fault: Mapping[str, str], answers: Mapping[str, Any]) -> str | None:
    """Return the published answer for a fault: a metric, or two events joined by `_`."""
    for services in answers.values():
        answer = services.get(service_of(fault["inject_pod"]), {}).get(fault["inject_type"])
        if answer:
            return str(answer)
    return None


@dataclass(frozen=True, kw_only=True)
class ServiceTelemetry:
    """Logs and spans of a service."""

    logs: pd.DataFrame
    """Lines with `time`, `SpanID` and `message`."""
    spans: pd.DataFrame
    """Spans with `start`, `TraceID`, `SpanID`, `ParentID` and `OperationName`."""


def first_sign_ns(answer: str | None, faulty: ServiceTelemetry, healthy: ServiceTelemetry) -> int | None:
    """Return the time of the first request in which two events are no longer consecutive; None if there is none.

    Callers that lack the second event in healthy time are ignored. A single broken request among complete ones is
    ignored too, because it was cut at the edge of a file.

    Parameters
    ----------
    answer
        The two events as `A_B`; other answers name no events.
    faulty, healthy
        Telemetry of the faulty service in the sampled minutes and in the fault-free time.
    """
    first, separator, second = (answer or "").partition("_")
    if not separator or faulty.logs.empty or healthy.logs.empty:
        return None
    share = _first_events(first, second, healthy).groupby("caller")["broken"].mean()
    events = _first_events(first, second, faulty)
    events = events[events["caller"].isin(share[share <= MAX_BROKEN].index)].sort_values("time", kind="stable")
    broken = events["broken"].to_numpy(dtype=bool)
    lasting = broken & np.append(broken[1:], True)
    return int(events["time"].to_numpy()[lasting][0]) if lasting.any() else None


def _first_events(first: str, second: str, telemetry: ServiceTelemetry) -> pd.DataFrame:
    """Return each first event with its `time`, the `caller`'s operation, and whether the second is missing."""
    import pandas as pd

    ordered, spans = telemetry.logs.sort_values(["SpanID", "time"], kind="stable"), telemetry.spans
    text = ordered["message"]
    if first.endswith(" start"):
        started = spans[spans["OperationName"].str.contains(first.removesuffix(" start"), regex=False)]
        line = ordered.drop_duplicates("SpanID").set_index("SpanID")["message"].reindex(started["SpanID"]).fillna("")
        operations = spans.drop_duplicates("SpanID").set_index("SpanID")["OperationName"]
        return pd.DataFrame({
            "time": started["start"].to_numpy(),
            "caller": operations.reindex(started["ParentID"]).fillna("").to_numpy(),
            "broken": ~line.str.contains(second, regex=False).to_numpy(dtype=bool),
        })  # fmt: skip
    matches = text.str.contains(first, regex=False).to_numpy(dtype=bool)
    same_span = (ordered["SpanID"] == ordered["SpanID"].shift(-1)).to_numpy()
    complete = same_span & text.shift(-1).fillna("").str.contains(second, regex=False).to_numpy(dtype=bool)
    return pd.DataFrame({"time": ordered["time"].to_numpy()[matches], "caller": "", "broken": ~complete[matches]})


def label_of(fault: Mapping[str, str], answer: str | None, sign_ns: int | None) -> dict[str, Any]:
    """Return the fields of the label; the onset is the earlier of `inject_time` and the first sign of the fault."""
    service = service_of(fault["inject_pod"])
    level, kind = KINDS.get(fault["inject_type"], (None, fault["inject_type"]))
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


def evidence_of(fault: Mapping[str, str], sign_ns: int | None, origin: str) -> Sequence[Mapping[str, Any]]:
    """Return evidence rows for the first sign of the fault and the origin of the reference."""
    return (
        {
            "check": "injection",
            "subject": fault["inject_pod"],
            "time": sign_ns,
            "passed": sign_ns is not None,
            "detail": "first request without the published order of events"
            if sign_ns is not None
            else "no events, or their order never changes",
        },
        {"check": "health", "subject": "reference", "time": None, "passed": True, "detail": origin},
    )
