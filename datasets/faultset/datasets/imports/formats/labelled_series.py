"""Read labelled series, and turn them into recordings: one service, its metrics, and windows with an anomaly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from faultset.core.errors import DataError
from faultset.core.printable import first_line, quoted
from faultset.core.times import SECOND_NS, utc_text
from faultset.datasets.format.incidents import ANOMALY
from faultset.datasets.imports.columns import Ints, long_metrics
from faultset.datasets.imports.contract import (
    DataIssue,
    ForeignChunk,
    ForeignRecording,
    build_cause,
    report_issues,
    split_window,
)
from faultset.datasets.imports.telemetry.times import parse_time

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_MAX_BLOCK_BYTES = 1 << 30


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
        Names of the columns; without a label column, no sample is an anomaly.

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
    # The first sample of each time is kept, and labelled if any sample of that time is.
    order = np.argsort(times_ns, kind="stable")
    times_ns, first = np.unique(times_ns[order], return_index=True)
    values, labels = values[order][first], np.logical_or.reduceat(labels[order], first)
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
    """Return the columns of a CSV file, named 1, 2, ... without a header; raise DataError if it is damaged."""
    try:
        with path.open("rb") as file:
            # Types are inferred from the first block, so it must contain all rows.
            block_size = min(_MAX_BLOCK_BYTES, path.stat().st_size + 1)
            table = pacsv.read_csv(
                file,
                read_options=pacsv.ReadOptions(
                    autogenerate_column_names=not header, use_threads=False, block_size=block_size
                ),
                convert_options=pacsv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False),
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} must be a CSV file with rows of the same length ({first_line(error)}); restore the file"
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
            return np.asarray(
                column.cast(pa.timestamp("ns", getattr(column.type, "tz", None))).cast(pa.int64()), dtype=np.int64
            )
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


def _find_issues(times_ns: Ints, location: str) -> Iterator[DataIssue]:
    """Yield issues with times that repeat or go back."""
    repeated = len(times_ns) - len(np.unique(times_ns))
    if repeated:
        problem = f"{repeated} of {len(times_ns)} times are repeated."
        yield DataIssue("warning", location, problem, "The first sample of each time is imported.")
    if (np.diff(times_ns) < 0).any():
        yield DataIssue("warning", location, "The times are not in order.", "The samples are sorted by time.")


CHUNK_SAMPLES = 250_000
_MAX_CHUNK_NS = 30 * 86_400 * SECOND_NS
_MAX_CHUNKS = 5_000
_MAX_TIME_NS = 1 << 62
START_NS = 1_577_836_800 * SECOND_NS
"""Time of the first sample of a series without times: 2020-01-01, UTC."""


class AnomalyWindow(NamedTuple):
    """A labelled anomaly, half-open, UTC nanoseconds."""

    start_ns: int
    end_ns: int
    parameters: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True)
class LabelledSeries:
    """The metrics of one service with labelled anomalies."""

    app: str
    """Name of the group of series."""
    service: str
    """Name of the series."""
    times_ns: Ints
    """[T] times of the samples, increasing."""
    metrics: Mapping[str, Numbers]
    """Metric -> [T] samples; NaN where one is missing."""
    step_ns: int
    """Time that a sample covers."""
    anomalies: Sequence[AnomalyWindow]
    """Labelled anomalies in time order."""
    training_rows: int = 0
    """Number of samples at the start that the source intends for training; 0 if there are none."""
    inputs: tuple[Path, ...] = field(default=())
    """Files of the series."""

    def __post_init__(self) -> None:
        if not 0 < int(self.times_ns[0]) < int(self.times_ns[-1]) < _MAX_TIME_NS or self.step_ns < 1_000_000:
            raise DataError(
                f"{self.service} must cover a time after 1970 in steps of at least 1 ms, but lasts from "
                f"{self.times_ns[0]} to {self.times_ns[-1]} ns; correct its times"
            )

    @property
    def end_ns(self) -> int:
        """End of the last sample."""
        return int(self.times_ns[-1]) + self.step_ns

    def to_recording(self) -> ForeignRecording:
        """Return the series as a recording; raise DataError if an anomaly is outside it."""
        return ForeignRecording(
            app=self.app,
            services=(self.service,),
            chunks=partial(_build_chunks, self),
            incidents=tuple(map(self._build_incident, self.anomalies)),
            training_end_ns=self._find_training_end(),
            source_intervals_s={"metrics": self.step_ns / SECOND_NS},
            inputs=self.inputs,
        )

    def _build_incident(self, window: AnomalyWindow) -> dict[str, Any]:
        if not self.times_ns[0] <= window.start_ns < window.end_ns <= self.end_ns:
            raise DataError(
                f"anomalies of {self.service} must be between {utc_text(int(self.times_ns[0]))} and "
                f"{utc_text(self.end_ns)}, the time of its samples, but one lasts from {utc_text(window.start_ns)} to "
                f"{utc_text(window.end_ns)}; correct its labels"
            )
        return {
            "fault": ANOMALY,
            "targets": [self.service],
            "root_causes": [build_cause(self.service)],
            "parameters": dict(window.parameters),
            "inject_start": window.start_ns,
            "recover_start": window.end_ns,
        }

    def _find_training_end(self) -> int | None:
        """Return the end of the training part, or the start of an anomaly that spans it; None without one."""
        if not self.training_rows:
            return None
        if self.training_rows >= len(self.times_ns):
            raise DataError(
                f"the training part of {self.service} must be shorter than its {len(self.times_ns)} samples, but has "
                f"{self.training_rows}; correct it"
            )
        end_ns = int(self.times_ns[self.training_rows])
        for window in reversed(self.anomalies):
            if window.start_ns < end_ns < window.end_ns:
                end_ns = window.start_ns
        return end_ns if end_ns > self.times_ns[0] else None


def _build_chunks(series: LabelledSeries) -> Iterator[ForeignChunk]:
    start_ns, end_ns = int(series.times_ns[0]), series.end_ns
    rows = max(1, CHUNK_SAMPLES // len(series.metrics))
    length_ns = min(max(series.step_ns * rows, (end_ns - start_ns) // _MAX_CHUNKS), _MAX_CHUNK_NS)
    for first_ns, last_ns in split_window(start_ns, end_ns, length_ns):
        first, last = np.searchsorted(series.times_ns, [first_ns, last_ns])
        columns = [(series.service, metric, values[first:last]) for metric, values in series.metrics.items()]
        table = partial(long_metrics, series.times_ns[first:last], columns)
        yield ForeignChunk(start_ns=first_ns, end_ns=last_ns, tables={"metrics": lambda table=table: [table()]})


def find_anomalies(labels: npt.NDArray[np.bool_], times_ns: Ints, step_ns: int) -> list[AnomalyWindow]:
    """Return a window for each run of labelled samples.

    Parameters
    ----------
    labels
        [T] whether each sample is an anomaly.
    times_ns
        [T] times of the samples.
    step_ns
        Time that a sample covers; a window ends earlier if the next sample follows sooner.

    Examples
    --------
    >>> [window[:2] for window in find_anomalies(np.array([0, 1, 1, 0, 1], bool), np.arange(5) * 10, 10)]
    [(10, 30), (40, 50)]
    """
    edges = np.flatnonzero(np.diff(labels.astype(np.int8), prepend=0, append=0))
    windows = []
    for first, after in edges.reshape(-1, 2).tolist():
        end_ns = int(times_ns[after - 1]) + step_ns
        if after < len(times_ns):
            end_ns = min(end_ns, int(times_ns[after]))
        windows.append(AnomalyWindow(int(times_ns[first]), end_ns))
    return windows


def build_times(rows: int, step_s: float) -> Ints:
    """Return [rows] times with a step, from `START_NS`, for a source that has none."""
    return START_NS + np.arange(rows, dtype=np.int64) * round(step_s * SECOND_NS)
