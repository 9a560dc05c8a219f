"""What a day of Nezha's data consists of, and which minutes belong to one of its faults.

A day has a folder of minutes around its faults, a folder with fault-free time, and a list of faults. The collector
ran once a minute, some seconds after the full minute: the file `HH_MM` holds what happened between its run at
`HH:MM` and the one before, and so does the metric sample taken at `HH:MM`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import Ints, read_csv

MINUTE_NS = 60 * SECOND_NS
LEAD_NS = 4 * SECOND_NS
"""Windows begin so long before the collector's run, so that none of its samples lies on an edge."""
TAIL_NS = 10 * SECOND_NS
"""Time after the last run: no pod's sample is taken later."""
SAMPLED_AFTER_NS = LEAD_NS + TAIL_NS
"""A metric sample describes the minute before it, and is taken at most so long after the end of a window."""
BEFORE, AFTER = 1, 2
"""Whole minutes of a view before and after the minute in which the fault was injected."""

_FAULT_LIST = "-fault_list.json"
_POD = re.compile(r"-[a-z0-9]+-[a-z0-9]+$")


@dataclass(frozen=True, kw_only=True)
class Day:
    """One day: its faults, the minutes around them, and the time without."""

    name: str
    root: Path
    rca: Path
    construct: Path
    faults: tuple[Mapping[str, str], ...]
    fault_list: Path

    def minute_files(self, kind: str, minutes: tuple[str, ...]) -> list[Path]:
        """Return the files of a kind (`log`, `trace`) for minutes `HH_MM`, those that are there."""
        paths = [self.rca / kind / f"{minute}_{kind}.csv" for minute in minutes]
        return [path for path in paths if path.is_file()]

    def reference_files(self, kind: str) -> list[Path]:
        """Return all files of a kind in the fault-free folder."""
        return sorted((self.construct / kind).glob(f"*_{kind}.csv"))

    def metric_files(self, folder: Path) -> list[Path]:
        """Return one file for each pod, sorted."""
        return sorted((folder / "metric").glob("*_metric.csv"))


def has_fault_free_files(day: Day) -> bool:
    """Say whether the fault-free time of a day has traces or logs."""
    return bool(day.reference_files("trace") or day.reference_files("log"))


def case_key(day: Day, fault: Mapping[str, str]) -> str:
    """Return the key of the case of a fault."""
    return f"{day.name}/{fault['inject_time'][11:]}/{fault['inject_pod']}/{fault['inject_type']}"


def find_days(root: Path) -> list[Day]:
    """Return all days below a folder, in order.

    Raises
    ------
    DataError
        For a fault list that cannot be read, or a day without fault-free data.
    """
    days = []
    for listed in sorted(root.rglob(f"*{_FAULT_LIST}")):
        rca = listed.parent
        base = rca.parent.parent
        construct = base / "construct_data" / rca.name
        if not construct.is_dir():
            raise DataError(f"{rca} comes without its fault-free data; put {construct} back")
        days.append(
            Day(name=rca.name, root=base, rca=rca, construct=construct, faults=_faults(listed), fault_list=listed)
        )
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
    """Return when a fault was injected, as `inject_time` says it, in UTC."""
    moment = datetime.strptime(fault["inject_time"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return int(moment.timestamp()) * SECOND_NS


def minutes_of(inject_ns: int) -> tuple[str, ...]:
    """Return the names of the minutes that were sampled for a fault.

    Examples
    --------
    >>> minutes_of(1674986284000000000)
    ('09_58', '09_59', '10_00')
    """
    first = inject_ns // MINUTE_NS
    return tuple(datetime.fromtimestamp((first + step) * 60, tz=UTC).strftime("%H_%M") for step in range(AFTER + 1))


def collector_runs(folder: Path) -> Ints:
    """Return when the collector ran, sorted, by the metrics of its first pod; DataError without any."""
    files = sorted((folder / "metric").glob("*_metric.csv"))
    if not files:
        raise DataError(f"{folder / 'metric'} holds no metrics; restore the folder")
    column = read_csv(files[0], columns=["Time"], text=["Time"])["Time"].to_pandas()
    return np.sort(sample_times(column[column != "Time"], files[0]))


def sample_times(column: Any, origin: Path) -> Ints:
    """Return the column `Time`, which Go has printed with its monotonic clock, as UTC nanoseconds.

    The column `TimeStamp` is 200,000,000 s late in some files and is not used.
    """
    import pandas as pd

    texts = column.astype(str).str.partition(" +")[0]
    times = pd.to_datetime(texts, errors="coerce", utc=True, format="ISO8601")
    if times.isna().any():
        raise DataError(f"{origin} has rows without a readable Time; restore the file")
    return times.astype("datetime64[ns, UTC]").astype("int64").to_numpy()


def grid_phase(runs: Ints, around_ns: int) -> int:
    """Return where in a minute windows begin: `LEAD_NS` before the collector ran, by its run nearest to a time."""
    nearest = int(runs[np.abs(runs - around_ns).argmin()])
    return (nearest // SECOND_NS * SECOND_NS - LEAD_NS) % MINUTE_NS


def floor_to(time_ns: int, phase_ns: int) -> int:
    """Return the last beginning of a window at or before a time."""
    return (time_ns - phase_ns) // MINUTE_NS * MINUTE_NS + phase_ns


def healthy_window(first_ns: int, last_ns: int, runs: Ints) -> tuple[int, int]:
    """Return whole minutes that hold all rows from a first to a last, but for those within the collector's jitter."""
    start = floor_to(first_ns, grid_phase(runs, first_ns))
    minutes = -(-(last_ns + 1 - LEAD_NS - start) // MINUTE_NS)
    return start, start + max(1, minutes) * MINUTE_NS


def own_window(inject_ns: int, runs: Ints) -> tuple[int, int]:
    """Return the time that the sampled minutes of a fault cover, from before the first to after the last run."""
    minute = inject_ns // MINUTE_NS * MINUTE_NS
    phase = grid_phase(runs, minute)
    # The run of a minute comes a few seconds into it, never before it.
    start = minute - BEFORE * MINUTE_NS + (phase if phase + LEAD_NS < MINUTE_NS else phase - MINUTE_NS)
    return start, start + (BEFORE + AFTER) * MINUTE_NS + TAIL_NS


def _faults(path: Path) -> tuple[Mapping[str, str], ...]:
    wanted = ("inject_time", "inject_timestamp", "inject_pod", "inject_type")
    try:
        hours = json.loads(path.read_text(encoding="utf-8-sig"))
        faults = [fault for _, listed in sorted(hours.items()) for fault in listed]
        return tuple({name: str(fault[name]) for name in wanted} for fault in faults)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a list of faults ({error!r}); restore the file") from error
