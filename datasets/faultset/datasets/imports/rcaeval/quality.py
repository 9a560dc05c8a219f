"""Data issues of RCAEval's files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.datasets.imports.columns import csv_header, epoch_unit, numbers, read_parquet
from faultset.datasets.imports.contract import Case, DataIssue
from faultset.datasets.imports.rcaeval.names import RAW_NAMES, same_services, split_name
from faultset.datasets.imports.rcaeval.reader import TIME_NAME, loaded, read_frame

_BOM = b"\xef\xbb\xbf"
_MOST_MISSING = 0.2


def data_issues(cases: Sequence[Case]) -> Sequence[DataIssue]:
    """Look at the files of cases."""
    return [issue for case in cases for issue in _of_case(case)]


def _of_case(case: Case) -> Iterator[DataIssue]:
    try:
        foreign = loaded(case)
    except DataError as error:
        yield DataIssue(severity="error", place=case.key, found=str(error), handling="The case cannot be imported.")
        return
    frame = read_frame(case)

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
        yield from _header(case, frame.path)
    if np.any(np.diff(frame.times_ns) == 0):
        yield issue("warning", "Rows repeat a time.", "All are kept; a step of a wide frame averages them.")
    missing = float(np.mean([np.isnan(samples).mean() for samples in frame.samples])) if frame.samples else 0.0
    if missing > _MOST_MISSING:
        yield issue("note", f"More than {_MOST_MISSING:.0%} of the samples are missing.", "They stay missing.")
    if not any(name.startswith(f"{case.facts['service']}_") for name in frame.names):
        yield issue("warning", "The service at fault has no metrics.", "It becomes a candidate without metrics.")
    for kind in ("logs", "traces"):
        yield from _records(case, kind, foreign.services)


def _header(case: Case, path: Path) -> Iterator[DataIssue]:
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


def _records(case: Case, kind: str, services: Sequence[str]) -> Iterator[DataIssue]:
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
