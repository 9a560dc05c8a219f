"""One case of RCAEval as an episode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.core.errors import DataError
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.columns import (
    Ints,
    csv_header,
    epoch_ns,
    long_metrics,
    numbers,
    numbers_of,
    read_csv,
    read_parquet,
)
from faultset.datasets.imports.contract import Case, ForeignEpisode
from faultset.datasets.imports.rcaeval.discovery import APPS, RAW_FILES, find_onset
from faultset.datasets.imports.rcaeval.names import FAULT_TYPES, INDICATORS, METRIC_ROLES, split_name
from faultset.datasets.imports.rcaeval.rows import log_rows, span_rows
from faultset.datasets.imports.windows import reference_end

TIME_NAME = re.compile(r"time(\.\d+)?", re.IGNORECASE)
_ENTRIES = ("frontend", "front-end", "ts-ui-dashboard")
_GROWS = 0.95


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A case's metrics as its file has them."""

    path: Path
    times_ns: Ints
    names: tuple[str, ...]
    samples: tuple[npt.NDArray[np.float64], ...]

    @property
    def interval_ns(self) -> int:
        """Usual time between two rows; a second where there is but one."""
        gaps = np.diff(np.unique(self.times_ns))
        return int(np.median(gaps)) if len(gaps) else SECOND_NS


def loaded(case: Case) -> ForeignEpisode:
    """Read a case: the whole recording is the view, the reference ends before the injection."""
    folder = case.paths[0]
    frame = read_frame(case)
    onset, onset_file = find_onset(case)
    logs, traces = record_file(folder, "logs"), record_file(folder, "traces")
    start, end = int(frame.times_ns[0]), int(frame.times_ns[-1]) + frame.interval_ns
    if not start < onset < end:
        raise DataError(
            f"{folder}: the injection at {onset // SECOND_NS} s lies outside the recording, "
            f"{start // SECOND_NS} to {end // SECOND_NS} s; leave the case out"
        )
    columns = [(*split_name(name), samples) for name, samples in zip(frame.names, frame.samples, strict=True)]
    target = case.facts["service"]
    services = tuple(dict.fromkeys([*(service for service, _, _ in columns if service is not None), target]))
    fault = case.facts["fault"]
    level, kind = FAULT_TYPES.get(fault, (None, fault))
    return ForeignEpisode(
        app=_app(case.facts["suite"]),
        view_start_ns=start,
        view_end_ns=end,
        reference_end_ns=reference_end(start, end, onset, origin=str(folder)),
        services=services,
        tables={
            "metrics": partial(_metric_tables, frame, columns),
            "spans": partial(_optional, span_rows, traces, services, start, end),
            "logs": partial(_optional, log_rows, logs, services, start, end),
        },
        source_intervals_s={"metrics": frame.interval_ns / SECOND_NS},
        workload_entry=next((name for name in _ENTRIES if name in services), ""),
        metric_roles=METRIC_ROLES,
        label={
            "fault": fault,
            "targets": [target],
            "root_causes": [_root_cause(target, fault, services, columns)],
            "system_level": level,
            "fault_type": kind,
            "parameters": canonical_json({"case": case.key}),
            "inject_start": onset,
        },
        inputs=tuple(path for path in (frame.path, onset_file, logs, traces) if path is not None),
    )


def _app(suite: str) -> str:
    series, _, name = suite.partition("-")
    return APPS.get(name, suite.lower()) if series.startswith("RE") else suite.lower()


def read_frame(case: Case) -> Frame:
    """Read the first candidate for a case's metrics, sorted by time; columns of one name are read once."""
    path = case.paths[0] / case.candidates[0]
    if path.suffix == ".json":
        return _json_frame(path)
    if path.suffix == ".parquet":
        return _frame(path, read_parquet(path))
    return _frame(path, read_csv(path, doubles=sorted(set(csv_header(path)))))


def _frame(path: Path, table: pa.Table) -> Frame:
    clocks = [position for position, name in enumerate(table.column_names) if TIME_NAME.fullmatch(name.strip())]
    if not clocks:
        raise DataError(f"{path} has no column time; restore it or leave the case out")
    clock = table.column(clocks[0])
    if pa.types.is_timestamp(clock.type):
        clock = clock.cast(pa.timestamp("ns")).cast(pa.int64())
    times = numbers(clock, origin=f"column time of {path}")
    known = ~np.isnan(times)
    if not known.any():
        raise DataError(f"{path} has no rows; leave the case out")
    stamps = epoch_ns(times[known].astype(np.int64) if np.all(times[known] % 1 == 0) else times[known])
    order = None if np.all(np.diff(stamps) >= 0) else np.argsort(stamps, kind="stable")
    first: dict[str, int] = {}
    for position, name in enumerate(table.column_names):
        if position not in clocks and name.strip() and not name.startswith("Unnamed"):
            first.setdefault(name.strip(), position)
    columns = {name: table.column(position) for name, position in first.items()}
    samples = numbers_of(columns, origin=str(path))
    samples = samples if known.all() else samples[:, known]
    return Frame(
        path=path,
        times_ns=stamps if order is None else stamps[order],
        names=tuple(first),
        samples=tuple(samples if order is None else samples[:, order]),
    )


def _json_frame(path: Path) -> Frame:
    import json

    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        pairs = {name: np.array(points, dtype=np.float64).reshape(-1, 2) for name, points in content.items() if points}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no object of series ({error}); restore it or leave the case out") from error
    pairs = {name: points[~np.isnan(points[:, 0])] for name, points in pairs.items()}
    if not any(len(points) for points in pairs.values()):
        raise DataError(f"{path} has no samples; leave the case out")
    union = np.unique(np.concatenate([points[:, 0] for points in pairs.values()]))
    samples = []
    for points in pairs.values():
        column = np.full(len(union), np.nan)
        column[np.searchsorted(union, points[:, 0])] = points[:, 1]
        samples.append(np.where(np.isfinite(column), column, np.nan))
    stamps = epoch_ns(union.astype(np.int64) if np.all(union % 1 == 0) else union)
    return Frame(path=path, times_ns=stamps, names=tuple(pairs), samples=tuple(samples))


def _metric_tables(frame: Frame, columns: Sequence[tuple[str | None, str, Any]]) -> Iterable[pa.Table]:
    raw = frame.path.name in RAW_FILES
    counting = [raw and _is_counter(metric, samples) for _, metric, samples in columns]
    if any(counting):
        counters = [column for column, counts in zip(columns, counting, strict=True) if counts]
        yield long_metrics(frame.times_ns, counters, kind="counter")
    levels = [column for column, counts in zip(columns, counting, strict=True) if not counts]
    yield long_metrics(frame.times_ns, levels)


def _is_counter(metric: str, samples: npt.NDArray[np.float64]) -> bool:
    """Say whether a raw series counts: its name says total, and it falls at restarts only."""
    if not metric.endswith(("-total", "_total")):
        return False
    steps = np.diff(samples[~np.isnan(samples)])
    return len(steps) > 0 and float(np.mean(steps >= 0)) >= _GROWS


def _optional(read: Any, path: Path | None, services: tuple[str, ...], start: int, end: int) -> Iterable[pa.Table]:
    return [read(path, services, start, end)] if path is not None else []


def record_file(folder: Path, name: str) -> Path | None:
    """Return the file with the logs or the traces of a case; None where there is none, or an empty one."""
    paths = (folder / f"{name}{suffix}" for suffix in (".parquet", ".csv"))
    return next((path for path in paths if path.is_file() and path.stat().st_size), None)


def _root_cause(
    target: str, fault: str, services: Sequence[str], columns: Sequence[tuple[str | None, str, Any]]
) -> dict[str, Any]:
    owned = {metric for service, metric, _ in columns if service == target}
    store = f"{target}-db"
    return {
        "kind": "Service",
        "name": target,
        "service": target,
        # RCAEval counts a service's store as the service.
        "accepted": [target, store] if store in services else [target],
        "metric": next((metric for metric in INDICATORS.get(fault, ()) if metric in owned), None),
    }
