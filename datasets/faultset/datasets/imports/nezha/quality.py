"""Data issues of a day of Nezha's data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.contract import DataIssue
from faultset.datasets.imports.nezha.days import (
    Day,
    case_key,
    has_fault_free_files,
    injected_ns,
    minutes_of,
    sample_times,
)
from faultset.datasets.imports.nezha.rows import read_metric_file

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
        if len(missing) == len(minutes) and has_fault_free_files(day):
            yield DataIssue(
                severity="error", place=place, found="none of its minutes was sampled", handling="it is left out"
            )
        elif missing:
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
        except DataError as error:
            yield DataIssue(
                severity="error", place=_place(day, path), found=str(error), handling="it cannot be imported"
            )
            continue
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
