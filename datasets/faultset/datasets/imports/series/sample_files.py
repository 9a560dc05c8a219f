"""Read samples, times and labels of CSV files; text, infinite numbers and labels other than 0 and 1 are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.printable import first_line, quoted
from faultset.datasets.imports.columns import Ints
from faultset.datasets.imports.contract import DataIssue, report_issues
from faultset.datasets.imports.telemetry.times import parse_time

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_LARGEST_BLOCK = 1 << 30


class LabelledSamples(NamedTuple):
    """Samples of one metric in time order."""

    times_ns: Ints
    """[T] distinct times."""
    values: Numbers
    """[T] samples; NaN where one is missing."""
    labels: Flags
    """[T] whether each sample is an anomaly."""
    step_ns: int
    """Median time between consecutive samples."""


def read_samples(path: Path, key: str, *, time: str, value: str, label: str | None = None) -> LabelledSamples:
    """Read a CSV file with one metric; report times that repeat or go back.

    Parameters
    ----------
    path
        File with a header.
    key
        Key of the case, for the issues.
    time, value, label
        Names of the columns; without a label, no sample is an anomaly.

    Raises
    ------
    DataError
        A column is missing, a cell is invalid, or the file has fewer than two samples at different times.
    """
    columns = read_table(path)
    names = [name for name in (time, value, label) if name is not None]
    if missing := [name for name in names if name not in columns]:
        raise DataError(f"{path} must have the columns {', '.join(names)}, but lacks {', '.join(missing)}")
    times_ns, values = _read_times(columns, time, path), read_numbers(columns, value, path)
    labels = np.zeros(len(values), dtype=bool)
    if label is not None:
        labels = parse_labels(read_numbers(columns, label, path), len(values), f"column {quoted(label)} of {path}")
    report_issues(partial(_find_issues, times_ns, key))
    times_ns, values, labels = _sort_by_time(times_ns, values, labels)
    if len(times_ns) < 2:
        raise DataError(f"{path} must have at least two samples at different times, but has {len(times_ns)}")
    return LabelledSamples(times_ns, values, labels, int(np.median(np.diff(times_ns))))


def check_finite(values: Numbers, origin: str) -> Numbers:
    """Return an array of samples; raise DataError for an infinite one. NaN is a missing sample."""
    infinite = np.argwhere(np.isinf(values))
    if len(infinite):
        row = int(infinite[0][0]) + 1
        raise DataError(
            f"{origin} must have finite numbers, but has {values[tuple(infinite[0])]} in row {row}; correct the file"
        )
    return values


def parse_labels(values: Numbers, rows: int, origin: str) -> Flags:
    """Return labels as booleans; raise DataError unless there is a 0 or 1 for each row of the data."""
    if values.shape != (rows,):
        raise DataError(
            f"{origin} must have a label for each of the {rows} rows of the data, but has {len(values)}; restore the "
            "two files"
        )
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if len(wrong):
        raise DataError(f"{origin} must have labels 0 and 1, but has {values[wrong[0]]:g} in row {int(wrong[0]) + 1}")
    return values == 1


def read_table(path: Path, *, header: bool = True) -> dict[str, pa.ChunkedArray]:
    """Return the columns of a CSV file; raise DataError if it is damaged.

    Parameters
    ----------
    header
        Whether the first row names the columns; otherwise they are named 1, 2, ...
    """
    try:
        with path.open("rb") as file:
            # Types are inferred from the first block, so it must contain all rows.
            block_size = min(_LARGEST_BLOCK, path.stat().st_size + 1)
            table = pacsv.read_csv(
                file,
                read_options=pacsv.ReadOptions(
                    autogenerate_column_names=not header, use_threads=False, block_size=block_size
                ),
                convert_options=pacsv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} must be a CSV file with rows of equal length ({first_line(error)}); restore the file"
        ) from error
    names = table.column_names if header else [str(number + 1) for number in range(table.num_columns)]
    if len({*names}) < len(names) or not table.num_rows:
        problem = "names a column twice" if table.num_rows else "has no rows"
        raise DataError(f"{path} must have distinct columns and at least one row, but {problem}; restore the file")
    return dict(zip(names, table.columns, strict=True))


def read_numbers(columns: Mapping[str, pa.ChunkedArray], name: str, path: Path) -> Numbers:
    """Return a column of a CSV file as numbers; empty cells are NaN, text and infinite numbers raise DataError."""
    column = columns[name]
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        row, cell = _first_text(column)
        raise DataError(
            f"column {quoted(name)} of {path} must have numbers, but has {quoted(str(cell))} in row {row}; correct the "
            "file"
        )
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
    return check_finite(values, f"column {quoted(name)} of {path}")


def _first_text(column: pa.ChunkedArray) -> tuple[int, Any]:
    for row, cell in enumerate(column.to_pylist(), start=1):
        try:
            float(cell if cell is not None else 0)
        except (TypeError, ValueError):
            return row, cell
    return 1, column[0].as_py()


def _read_times(columns: Mapping[str, pa.ChunkedArray], name: str, path: Path) -> Ints:
    """Return a column of a CSV file as UTC nanoseconds; times without a zone are UTC."""
    column = columns[name]
    with suppress(pa.ArrowInvalid):  # if a time is beyond the years that nanoseconds can express
        if pa.types.is_temporal(column.type) and not pa.types.is_time(column.type) and not column.null_count:
            return np.asarray(column.cast(pa.timestamp("ns", _zone(column.type))).cast(pa.int64()), dtype=np.int64)
    times = []
    for row, cell in enumerate(column.cast(pa.string()).to_pylist(), start=1):
        time_ns = parse_time(cell)
        if time_ns is None:
            raise DataError(
                f"column {quoted(name)} of {path} must have times like 2018-04-25T00:00:00Z, but has "
                f"{quoted(str(cell))} in row {row}; correct the file"
            )
        times.append(time_ns)
    return np.array(times, dtype=np.int64)


def _zone(kind: pa.DataType) -> str | None:
    return getattr(kind, "tz", None)


def _sort_by_time(times_ns: Ints, values: Numbers, labels: Flags) -> tuple[Ints, Numbers, Flags]:
    """Sort samples by time; keep the first of each time, labelled if any sample of that time is."""
    order = np.argsort(times_ns, kind="stable")
    distinct, first = np.unique(times_ns[order], return_index=True)
    return distinct, values[order][first], np.logical_or.reduceat(labels[order], first)


def _find_issues(times_ns: Ints, location: str) -> Iterator[DataIssue]:
    """Yield issues on times of a file that repeat or go back."""
    repeated = len(times_ns) - len(np.unique(times_ns))
    if repeated:
        problem = f"{repeated} of {len(times_ns)} times repeat."
        yield DataIssue("warning", location, problem, "The first sample of each time is imported.")
    if (np.diff(times_ns) < 0).any():
        yield DataIssue("warning", location, "The times are not in order.", "The samples are sorted by time.")
