"""RCAEval: 735 cases of three applications (Pham et al., WWW 2025), in any of its three layouts.

Z is the original on Zenodo, F the flat one on Figshare, H the Parquet one on Hugging Face.
"""

from __future__ import annotations

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
from faultset.core.json_text import canonical_json
from faultset.core.times import SECOND_NS
from faultset.datasets.imports.archives import is_archive, names_in, unpacked
from faultset.datasets.imports.columns import (
    Ints,
    csv_header,
    epoch_ns,
    epoch_unit,
    long_metrics,
    numbers,
    numbers_of,
    read_csv,
    read_parquet,
)
from faultset.datasets.imports.contract import Case, DataIssue, ForeignEpisode, report_issues
from faultset.datasets.imports.formats.rcaeval_files import (
    APPS,
    FAULT_TYPES,
    INDICATORS,
    METRIC_ROLES,
    RAW_FILES,
    RAW_NAMES,
    case_folders,
    find_onset,
    found_cases,
    is_case_file,
    log_rows,
    same_services,
    span_rows,
    split_name,
)
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


def _load(case: Case) -> ForeignEpisode:
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
    report_issues(partial(case_issues, case, frame, services))
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


_BOM = b"\xef\xbb\xbf"
_MOST_MISSING = 0.2


def case_issues(case: Case, frame: Frame, services: Sequence[str]) -> Iterator[DataIssue]:
    """Look at the files of a case: units, headers, what is missing."""

    def issue(severity: str, found: str, handling: str) -> DataIssue:
        return DataIssue(severity=severity, place=case.key, found=found, handling=handling)  # type: ignore[arg-type]

    raw = [name for name in frame.names if split_name(name)[1].startswith(RAW_NAMES)]
    if raw:
        yield issue(
            "warning",
            f"{frame.path.name} has raw names of metrics.",
            "They are imported; series that are named total and grow are counters.",
        )
    if frame.path.suffix == ".csv":
        yield from _header_issues(case, frame.path)
    if np.any(np.diff(frame.times_ns) == 0):
        yield issue("warning", "Rows repeat a time.", "All are kept; a step of a wide frame averages them.")
    missing = float(np.mean([np.isnan(samples).mean() for samples in frame.samples])) if frame.samples else 0.0
    if missing > _MOST_MISSING:
        yield issue("note", f"More than {_MOST_MISSING:.0%} of the samples are missing.", "They stay missing.")
    if not any(name.startswith(f"{case.facts['service']}_") for name in frame.names):
        yield issue("warning", "The service at fault has no metrics.", "It becomes a candidate without metrics.")
    for kind in ("logs", "traces"):
        yield from _record_issues(case, kind, services)


def _header_issues(case: Case, path: Path) -> Iterator[DataIssue]:
    with path.open("rb") as file:
        if file.read(3) == _BOM:
            yield DataIssue(
                severity="note",
                place=case.key,
                found=f"{path.name} begins with a byte-order mark.",
                handling="It is skipped.",
            )
    names = csv_header(path)
    clocks = [name for name in names if TIME_NAME.fullmatch(name.strip())]
    if len(clocks) > 1:
        yield DataIssue(
            severity="warning",
            place=case.key,
            found=f"{path.name} has {len(clocks)} time columns.",
            handling="The first is the time, the others are left out.",
        )
    repeated = [name for name, count in Counter(names).items() if count > 1 and name not in clocks]
    if repeated:
        yield DataIssue(
            severity="warning",
            place=case.key,
            found=f"{path.name} names a column twice ({repeated[0]}).",
            handling="The first is taken.",
        )


def _record_issues(case: Case, kind: str, services: Sequence[str]) -> Iterator[DataIssue]:
    folder = case.paths[0]
    path = next((folder / name for name in (f"{kind}.parquet", f"{kind}.csv") if (folder / name).is_file()), None)

    def issue(severity: str, found: str, handling: str) -> DataIssue:
        return DataIssue(severity=severity, place=case.key, found=found, handling=handling)  # type: ignore[arg-type]

    if path is None:
        yield issue("note", f"There are no {kind}.", "The table is empty.")
        return
    table = _beginning(path)
    if table is None or not len(table):
        yield issue("note", f"{path.name} has a header and no rows.", "The table is empty.")
        return
    clock, source = ("timestamp", "container_name") if kind == "logs" else ("startTime", "serviceName")
    if clock in table.column_names:
        times = numbers(table[clock], origin=f"column {clock} of {path}")
        unit = epoch_unit(times[~np.isnan(times)])
        if unit != ("ns" if kind == "logs" else "µs"):
            yield issue(
                "warning",
                f"{clock} in {path.name} counts {unit}.",
                "The magnitude tells the unit; times are brought to nanoseconds.",
            )
    elif kind == "logs" or "startTimeMillis" not in table.column_names:
        yield issue("warning", f"{path.name} has no column {clock}.", "The table is empty.")
    if source in table.column_names:
        words = [word for word in table[source].cast(pa.string()).unique().to_pylist() if word]
        found = same_services(words, services)
        other = sorted(word for word, name in found.items() if name is not None and name != word)
        unknown = sorted(word for word, name in found.items() if name is None)
        if other:
            yield issue("note", f"{path.name} says {other[0]} for {found[other[0]]}.", "The name in metrics is used.")
        if unknown:
            yield issue(
                "note",
                f"{path.name} names what has no metrics ({unknown[0]}).",
                "Such rows belong to no service; their own name is kept beside it.",
            )


def _beginning(path: Path) -> pa.Table | None:
    """Return the first part of a file; None when there is nothing to read."""
    if path.suffix == ".parquet":
        return read_parquet(path, ["timestamp", "container_name", "startTime", "startTimeMillis", "serviceName"])
    try:
        with pacsv.open_csv(path, parse_options=pacsv.ParseOptions(newlines_in_values=True)) as reader:
            return pa.Table.from_batches([reader.read_next_batch()])
    except (pa.ArrowInvalid, StopIteration):
        return None


class RCAEvalImport:
    """Cases of RCAEval, layouts Z, F and H, suites RE1 to RE3."""

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
        "Every case is a fault, and its onset lies in the middle of the recording: the layout tells that there is a "
        "fault and when it begins. Detection scores mean little. There is no record that a fault took effect, and "
        "none of its end."
    )

    def recognises(self, path: Path) -> bool:
        """Say whether there is a case with its service and fault in the name of its folder."""
        if is_archive(path):
            return any(is_case_file(Path(name)) for name in names_in(path))
        return next(iter(case_folders(path)), None) is not None

    def cases(self, path: Path) -> Sequence[Case]:
        """Find every folder with metrics whose name gives service and fault."""
        return found_cases(unpacked(path))

    def load(self, case: Case) -> ForeignEpisode:
        """Read a case: the whole recording is the view."""
        return _load(case)
