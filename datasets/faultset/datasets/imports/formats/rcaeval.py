"""Import RCAEval: 735 cases of three applications (Pham et al., WWW 2025), in any of its three layouts.

Layout Z is the original on Zenodo, F the flat one on Figshare, H the Parquet one on Hugging Face.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.files import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import is_archive, list_names, unpack
from faultset.datasets.imports.columns import (
    Column,
    Ints,
    csv_header,
    epoch_ns,
    epoch_unit,
    list_words,
    long_metrics,
    number_matrix,
    numbers,
    parsing,
    read_csv,
    read_parquet,
)
from faultset.datasets.imports.contract import (
    Case,
    DataIssue,
    ForeignEpisode,
    build_cause,
    reference_end,
    report_issues,
)
from faultset.datasets.imports.formats.rcaeval_files import (
    APPS,
    FAULT_TYPES,
    INDICATORS,
    METRIC_ROLES,
    RAW_FILES,
    RAW_NAMES,
    case_folders,
    find_cases,
    find_onset,
    is_case_file,
    log_rows,
    match_services,
    span_rows,
    split_name,
)

TIME_NAME = re.compile(r"time(\.\d+)?", re.IGNORECASE)
_ENTRIES = ("frontend", "front-end", "ts-ui-dashboard")
_MIN_RISING_SHARE = 0.95


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Metrics of a case under the names in its file."""

    path: Path
    times_ns: Ints
    names: tuple[str, ...]
    samples: tuple[npt.NDArray[np.float64], ...]

    @property
    def interval_ns(self) -> int:
        """Median time between rows; one second if there is only one row."""
        gaps = np.diff(np.unique(self.times_ns))
        return int(np.median(gaps)) if len(gaps) else SECOND_NS


def read_frame(case: Case) -> Frame:
    """Read a case's metrics from its first candidate, sorted by time; repeated columns are read once."""
    path = case.paths[0] / case.candidates[0]
    if path.suffix == ".json":
        return _read_json_frame(path)
    if path.suffix == ".parquet":
        return _build_frame(path, read_parquet(path))
    return _build_frame(path, read_csv(path, doubles=sorted(set(csv_header(path)))))


def _build_frame(path: Path, table: pa.Table) -> Frame:
    clocks = [position for position, name in enumerate(table.column_names) if TIME_NAME.fullmatch(name.strip())]
    if not clocks:
        raise DataError(f"{path} needs a column time; restore it or leave the case out")
    clock = table.column(clocks[0])
    if pa.types.is_timestamp(clock.type):
        clock = clock.cast(pa.timestamp("ns")).cast(pa.int64())
    times = numbers(clock, origin=f"column time of {path}")
    valid = ~np.isnan(times)
    if not valid.any():
        raise DataError(f"{path} has no rows; leave the case out")
    stamps = epoch_ns(times[valid].astype(np.int64) if np.all(times[valid] % 1 == 0) else times[valid])
    order = None if np.all(np.diff(stamps) >= 0) else np.argsort(stamps, kind="stable")
    first: dict[str, int] = {}
    for position, name in enumerate(table.column_names):
        if position not in clocks and name.strip() and not name.startswith("Unnamed"):
            first.setdefault(name.strip(), position)
    columns = {name: table.column(position) for name, position in first.items()}
    samples = number_matrix(columns, origin=str(path))
    samples = samples if valid.all() else samples[:, valid]
    return Frame(
        path=path,
        times_ns=stamps if order is None else stamps[order],
        names=tuple(first),
        samples=tuple(samples if order is None else samples[:, order]),
    )


def _read_json_frame(path: Path) -> Frame:
    with parsing(path, "be an object of series", "restore it or leave the case out"):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        pairs = {name: np.array(points, dtype=np.float64).reshape(-1, 2) for name, points in content.items() if points}
    pairs = {name: points[~np.isnan(points[:, 0])] for name, points in pairs.items()}
    if not any(len(points) for points in pairs.values()):
        raise DataError(f"{path} has no samples; leave the case out")
    union = np.unique(np.concatenate([points[:, 0] for points in pairs.values()]))
    samples = np.full((len(pairs), len(union)), np.nan)
    for column, points in zip(samples, pairs.values(), strict=True):
        column[np.searchsorted(union, points[:, 0])] = np.where(np.isfinite(points[:, 1]), points[:, 1], np.nan)
    stamps = epoch_ns(union.astype(np.int64) if np.all(union % 1 == 0) else union)
    return Frame(path=path, times_ns=stamps, names=tuple(pairs), samples=tuple(samples))


def _metric_tables(frame: Frame, columns: Sequence[Column]) -> Iterable[pa.Table]:
    kinds: dict[str, list[Column]] = {"counter": [], "gauge": []}
    for column in columns:
        is_counter = frame.path.name in RAW_FILES and _is_counter(column[1], column[2])
        kinds["counter" if is_counter else "gauge"].append(column)
    return [long_metrics(frame.times_ns, members, kind=kind) for kind, members in kinds.items() if members]


def _is_counter(metric: str, samples: npt.NDArray[np.float64]) -> bool:
    """Return whether a raw series is a counter: its name ends in `total`, and at most 5 % of its steps fall."""
    if not metric.endswith(("-total", "_total")):
        return False
    steps = np.diff(samples[~np.isnan(samples)])
    return len(steps) > 0 and float(np.mean(steps >= 0)) >= _MIN_RISING_SHARE


def record_file(folder: Path, name: str, *, with_empty: bool = False) -> Path | None:
    """Return the file with the logs or the traces of a case, or None; an empty file only if `with_empty`."""
    paths = (folder / f"{name}{suffix}" for suffix in (".parquet", ".csv"))
    return next((path for path in paths if path.is_file() and (with_empty or path.stat().st_size)), None)


def _build_root_cause(target: str, fault: str, services: Sequence[str], columns: Sequence[Column]) -> dict[str, Any]:
    metrics = {metric for service, metric, _ in columns if service == target}
    cause = build_cause(target, metric=next((name for name in INDICATORS.get(fault, ()) if name in metrics), None))
    # RCAEval counts a service's store as the service.
    return cause | {"accepted": [target, store] if (store := f"{target}-db") in services else [target]}


_BOM = b"\xef\xbb\xbf"
_MAX_MISSING = 0.2


def find_issues(case: Case, frame: Frame, services: Sequence[str]) -> Iterator[DataIssue]:
    key = case.key
    if any(split_name(name)[1].startswith(RAW_NAMES) for name in frame.names):
        problem = f"{frame.path.name} has raw metric names."
        yield DataIssue("warning", key, problem, "They are imported; growing series named total are counters.")
    if frame.path.suffix == ".csv":
        yield from _find_header_issues(key, frame.path)
    if np.any(np.diff(frame.times_ns) == 0):
        yield DataIssue(
            "warning",
            key,
            "Several rows have the same time.",
            "All are kept; a step of a wide frame averages them.",
        )
    missing = float(np.mean([np.isnan(samples).mean() for samples in frame.samples])) if frame.samples else 0.0
    if missing > _MAX_MISSING:
        yield DataIssue(
            "note", key, f"More than {_MAX_MISSING:.0%} of the samples are missing.", "They are left missing."
        )
    if not any(name.startswith(f"{case.facts['service']}_") for name in frame.names):
        problem = "The faulty service has no metrics."
        yield DataIssue("warning", key, problem, "It becomes a candidate without metrics.")
    for kind in ("logs", "traces"):
        yield from _find_record_issues(case, kind, services)


def _find_header_issues(key: str, path: Path) -> Iterator[DataIssue]:
    with path.open("rb") as file:
        if file.read(3) == _BOM:
            yield DataIssue("note", key, f"{path.name} begins with a byte-order mark.", "It is skipped.")
    names = csv_header(path)
    clocks = [name for name in names if TIME_NAME.fullmatch(name.strip())]
    if len(clocks) > 1:
        problem = f"{path.name} has {len(clocks)} time columns."
        yield DataIssue("warning", key, problem, "The first is used; the others are left out.")
    repeated = [name for name, count in Counter(names).items() if count > 1 and name not in clocks]
    if repeated:
        yield DataIssue("warning", key, f"{path.name} names a column twice ({repeated[0]}).", "The first is imported.")


def _find_record_issues(case: Case, kind: str, services: Sequence[str]) -> Iterator[DataIssue]:
    folder, key = case.paths[0], case.key
    path = record_file(folder, kind, with_empty=True)
    if path is None:
        yield DataIssue("note", key, f"There are no {kind}.", "The table is empty.")
        return
    table = _read_first_batch(path)
    if table is None or not len(table):
        yield DataIssue("note", key, f"{path.name} has a header but no rows.", "The table is empty.")
        return
    clock, source = ("timestamp", "container_name") if kind == "logs" else ("startTime", "serviceName")
    if clock in table.column_names:
        times = numbers(table[clock], origin=f"column {clock} of {path}")
        _, unit = epoch_unit(times[~np.isnan(times)])
        if unit != ("ns" if kind == "logs" else "µs"):
            handling = "The unit is inferred from the magnitude, and times are converted to nanoseconds."
            yield DataIssue("warning", key, f"{clock} in {path.name} is in {unit}.", handling)
    elif kind == "logs" or "startTimeMillis" not in table.column_names:
        yield DataIssue("warning", key, f"{path.name} has no column {clock}.", "The table is empty.")
    if source in table.column_names:
        matches = match_services(filter(None, list_words(table[source])), services)
        renamed = sorted(word for word, name in matches.items() if name is not None and name != word)
        unknown = sorted(word for word, name in matches.items() if name is None)
        if renamed:
            problem = f"{path.name} calls {matches[renamed[0]]} by the name {renamed[0]}."
            yield DataIssue("note", key, problem, "The name in the metrics is used.")
        if unknown:
            problem = f"{path.name} names a service without metrics ({unknown[0]})."
            yield DataIssue("note", key, problem, "Its rows have no service, but keep the original name.")


def _read_first_batch(path: Path) -> pa.Table | None:
    """Return the first rows of a CSV file, or all rows of a Parquet file; None for CSV that cannot be read."""
    if path.suffix == ".parquet":
        return read_parquet(path, ["timestamp", "container_name", "startTime", "startTimeMillis", "serviceName"])
    try:
        with pacsv.open_csv(path, parse_options=pacsv.ParseOptions(newlines_in_values=True)) as reader:
            return pa.Table.from_batches([reader.read_next_batch()])
    except (pa.ArrowInvalid, StopIteration):
        return None


class RCAEvalImport:
    """RCAEval in the layouts Z, F and H, suites RE1 to RE3."""

    name = "rcaeval"
    title = "RCAEval"
    layout = (
        ("a folder such as cartservice_cpu/1", r"(^|/)([^_/]+_[^_/]+/\d+|([^_/]+_){3}\d+)(/|$)"),
        (
            "a file with metrics (simple_metrics.csv, data.csv)",
            r"(^|/)(metrics\.(parquet|json|csv)|simple_(metrics|data)\.csv|data\.csv)$",
        ),
    )
    weakness = (
        "Every case has a fault, and its onset is in the middle of the recording, so the layout reveals both. "
        "Detection scores mean little. There is no record of a fault's effect or end."
    )

    def recognises(self, path: Path) -> bool:
        if is_archive(path):
            return any(is_case_file(Path(name)) for name in list_names(path))
        return next(iter(case_folders(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        return find_cases(unpack(path))

    def load(self, case: Case) -> ForeignEpisode:
        """Read a case; the view is the whole recording."""
        folder = case.paths[0]
        frame = read_frame(case)
        onset, onset_file = find_onset(case)
        logs, traces = record_file(folder, "logs"), record_file(folder, "traces")
        start, end = int(frame.times_ns[0]), int(frame.times_ns[-1]) + frame.interval_ns
        if not start < onset < end:
            raise DataError(
                f"{folder}: the injection at {onset // SECOND_NS} s must be within the recording from "
                f"{start // SECOND_NS} to {end // SECOND_NS} s; leave the case out"
            )
        columns = [(*split_name(name), samples) for name, samples in zip(frame.names, frame.samples, strict=True)]
        target = case.facts["service"]
        services = tuple(dict.fromkeys([*(service for service, _, _ in columns if service is not None), target]))
        report_issues(partial(find_issues, case, frame, services))
        fault, suite = case.facts["fault"], str(case.facts["suite"])
        app = APPS.get(suite.partition("-")[2], suite.lower()) if suite.startswith("RE") else suite.lower()
        level, kind = FAULT_TYPES.get(fault, (None, fault))
        return ForeignEpisode(
            app=app,
            view_start_ns=start,
            view_end_ns=end,
            reference_end_ns=reference_end(start, end, onset, origin=str(folder)),
            services=services,
            tables={
                "metrics": lambda: _metric_tables(frame, columns),
                "spans": lambda: [span_rows(traces, services, start, end)] if traces else [],
                "logs": lambda: [log_rows(logs, services, start, end)] if logs else [],
            },
            source_intervals_s={"metrics": frame.interval_ns / SECOND_NS},
            workload_entry=next((name for name in _ENTRIES if name in services), ""),
            metric_roles=METRIC_ROLES,
            label={
                "fault": fault,
                "targets": [target],
                "root_causes": [_build_root_cause(target, fault, services, columns)],
                "system_level": level,
                "fault_type": kind,
                "parameters": canonical_json({"case": case.key}),
                "inject_start": onset,
            },
            inputs=tuple(path for path in (frame.path, onset_file, logs, traces) if path is not None),
        )
