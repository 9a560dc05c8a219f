"""The view of a recording, the input of methods: context and telemetry without the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.core.errors import DataError, UsageError
from faultset.core.times import SECOND_NS, Time, step_seconds, time_ns, utc_text
from faultset.datasets.format.context import RecordingContext, read_recording_context
from faultset.datasets.format.recordings import Chunk, Stretch, read_chunks, segments_of
from faultset.datasets.format.schemas import time_column
from faultset.datasets.metrics.roles import Catalogue, catalogue_with, parse_roles
from faultset.datasets.table_reading import Filters, read_columns, read_samples, schema_of

if TYPE_CHECKING:
    import pandas as pd

pc: Any = arrow_compute
# type checkers do not see its functions, which are created at import
_MARGIN_STEPS = 10
"""Number of sampling steps to read before a window, so that its first rates have a previous sample."""


@dataclass(frozen=True, kw_only=True)
class TimeSlice:
    """Rows that became available in a time interval, `[start_ns, end_ns)`.

    A span is in the slice in which it ended, a request in the slice of its response, any other row in the slice of its
    time.
    """

    start_ns: int
    """Start, UTC nanoseconds."""
    end_ns: int
    """End (exclusive), UTC nanoseconds."""
    tables: Mapping[str, pa.Table]
    """Table -> rows, sorted by the time at which they became available."""


class RecordingView:
    """The context and telemetry of a recording.

    A view opens only `context.json`, and `chunk.json` and the files under `telemetry/` of the chunks. It reads them on
    demand; methods that yield read one chunk at a time.

    Parameters
    ----------
    path
        Folder of the recording, `DATASET/recordings/<id>`.
    numbers
        Numbers of the chunks to read; by default all that are complete.

    Raises
    ------
    DataError
        A file is missing or damaged, or the recording lacks chunks.
    """

    def __init__(self, path: Path | str, numbers: Sequence[int] | None = None) -> None:
        self.folder = Path(path)
        """Its folder."""
        self._numbers = None if numbers is None else tuple(numbers)
        self.context: RecordingContext = read_recording_context(self.folder)
        """Facts about the system."""
        self.chunks: tuple[Chunk, ...] = read_chunks(self.folder, numbers)
        """Its chunks in time order."""
        if not self.chunks:
            raise DataError(
                f"recording {self.folder} must have a complete chunk, but has none; record for longer than one chunk"
            )

    def __repr__(self) -> str:
        return f"RecordingView({self.recording!r}, {(self.window[1] - self.window[0]) / 3600e9:.1f} h)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self._numbers)

    @property
    def recording(self) -> str:
        """Opaque id."""
        return self.context.recording

    @property
    def services(self) -> tuple[str, ...]:
        """All services, including faulty ones."""
        return self.context.services

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Declared call graph as (caller, callee)."""
        return self.context.calls

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of all tables: first the standard ones, then those added by sources."""
        return tuple(self.context.tables)

    @property
    def window(self) -> tuple[int, int]:
        """Half-open window of all telemetry, UTC nanoseconds."""
        return self.chunks[0].start_ns, self.chunks[-1].end_ns

    @cached_property
    def segments(self) -> tuple[Stretch, ...]:
        """Stretches without a gap; between two of them the application was deployed again."""
        return segments_of(self.chunks)

    @property
    def catalogue(self) -> Catalogue:
        """Metric roles of the recording, then the built-in ones."""
        return catalogue_with(self.context.metric_roles)

    def table(
        self,
        name: str,
        start: Time = None,
        end: Time = None,
        columns: Sequence[str] | None = None,
        filters: Filters = None,
    ) -> pa.Table:
        """Read the rows of a table in a window; metrics are sorted by series within each chunk, others by time.

        Parameters
        ----------
        name
            metrics, spans, logs, events, objects, requests, or an added table; see `tables`.
        start, end
            Half-open window: UTC nanoseconds, timestamps or ISO strings; by default the whole recording.
        columns
            Columns to read; all by default.
        filters
            As for `pyarrow.parquet.read_table`, for instance `[("service", "==", "geo")]`.

        Raises
        ------
        UsageError
            The table or column does not exist, or the window is empty.
        DataError
            A file is missing or damaged.
        """
        start_ns, end_ns = self.bounds(start, end)
        schema = schema_of(name, self.context.tables)
        chosen = list(columns) if columns is not None else schema.names
        pieces = [schema.empty_table().select(chosen)] if columns is None or set(chosen) <= {*schema.names} else []
        time = time_column(name)
        for chunk in self._chunks_in(start_ns, end_ns):
            read = chosen if time in chosen else [*chosen, time]
            rows = read_columns(self.folder / chunk.folder, name, schema, read, filters)
            pieces.append(_filter_between(rows, time, start_ns, end_ns).select(chosen))
        return pa.concat_tables(pieces).unify_dictionaries()

    def stream(
        self,
        step_s: float | str,
        tables: Iterable[str] = ("metrics", "spans", "logs", "events"),
        *,
        start: Time = None,
        end: Time = None,
    ) -> Iterator[TimeSlice]:
        """Yield the rows that became available in each step, in time order; steps between segments are left out.

        At most one chunk is in memory.

        Parameters
        ----------
        step_s
            Length of a step in seconds, or text such as "10s".
        tables
            Tables to read.
        start, end
            Half-open window, by default the whole recording; the first step starts with it.
        """
        names = tuple(tables)
        start_ns, end_ns = self.bounds(start, end)
        step_ns = round(step_seconds(step_s) * SECOND_NS)
        pending: dict[str, pa.Table] = {}
        position = start_ns
        for chunk in self._chunks_in(start_ns, end_ns):
            if position < chunk.start_ns:
                position += (chunk.start_ns - position) // step_ns * step_ns
            rows = {name: self._read_with_times(name, chunk, start_ns, end_ns) for name in names}
            pending = {name: pa.concat_tables([pending[name], rows[name]]) if pending else rows[name] for name in names}
            pending = {name: table.sort_by(_AVAILABLE) for name, table in pending.items()}
            last_ns = end_ns if chunk is self.chunks[-1] or chunk.end_ns >= end_ns else chunk.end_ns
            last_of_segment = not self._continues(chunk)
            while position < last_ns and (position + step_ns <= last_ns or last_of_segment or last_ns == end_ns):
                until = min(position + step_ns, end_ns)
                available, pending = _split_available(pending, until)
                yield TimeSlice(start_ns=position, end_ns=until, tables=available)
                position += step_ns
            if last_of_segment:
                pending = {}

    def _continues(self, chunk: Chunk) -> bool:
        """Return whether the segment of a chunk continues after it."""
        return any(other.segment == chunk.segment and other.number > chunk.number for other in self.chunks)

    def _read_with_times(self, name: str, chunk: Chunk, start_ns: int, end_ns: int) -> pa.Table:
        """Return the rows of a chunk with the time at which they became available in the column `_AVAILABLE`."""
        schema = schema_of(name, self.context.tables)
        time = time_column(name)
        rows = read_columns(self.folder / chunk.folder, name, schema, None)
        rows = _filter_between(rows, time, start_ns, end_ns)
        times = rows[time].cast(pa.int64())
        if name in _DURATIONS:
            times = pc.add(times, pc.fill_null(rows[_DURATIONS[name]], 0))
        return rows.append_column(_AVAILABLE, times)

    def wide(
        self,
        start: Time = None,
        end: Time = None,
        step_s: float | str = 1.0,
        roles: Iterable[str] | None = None,
    ) -> pd.DataFrame:
        """Return metrics as levels and per-second rates on a regular grid.

        `faultset.datasets.metrics.frames.wide_frame` describes the conversion.

        Parameters
        ----------
        start, end
            Half-open window, by default the whole recording; the grid starts with it.
        step_s
            Length of a step in seconds, or text such as "1s" or "500ms".
        roles
            Only columns with these roles (`faultset.datasets.metrics.roles.ROLES`).

        Returns
        -------
        pandas.DataFrame
            [T, D] one row per step, indexed by the start of the step in UTC; one column per (service, metric); NaN
            where a step has no sample. Steps between segments are left out.
        """
        import pandas as pd

        frames = list(self.wide_blocks(start, end, step_s, roles))
        frame = frames[0] if len(frames) == 1 else pd.concat(frames)
        return frame.sort_index(axis=1)

    def wide_blocks(
        self,
        start: Time = None,
        end: Time = None,
        step_s: float | str = 1.0,
        roles: Iterable[str] | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Yield the frame of `wide` in blocks of about one chunk, so that memory does not grow with the length.

        Blocks may differ in their columns, because services start and stop.
        """
        from faultset.datasets.metrics.frames import wide_frame

        start_ns, end_ns = self.bounds(start, end)
        chosen, catalogue = (None if roles is None else parse_roles(roles)), self.catalogue
        seconds = step_seconds(step_s)
        margin_ns = round(_MARGIN_STEPS * self.context.sampling_step_s * SECOND_NS)
        for first_ns, last_ns in self._blocks(start_ns, end_ns, round(seconds * SECOND_NS)):
            samples = self._samples(first_ns - margin_ns, last_ns, chosen, catalogue)
            frame = wide_frame(samples, first_ns, last_ns, seconds, catalogue=catalogue)
            if chosen is not None:
                names = frame.columns.get_level_values("metric")
                frame = frame.loc[:, [catalogue.role_of(metric) in chosen for metric in names]]
            yield frame

    def _blocks(self, start_ns: int, end_ns: int, step_ns: int) -> Iterator[tuple[int, int]]:
        """Yield the windows of consecutive steps that start in the same chunk."""
        for chunk in self._chunks_in(start_ns, end_ns):
            first, last = (
                start_ns + -(-(max(bound, start_ns) - start_ns) // step_ns) * step_ns
                for bound in (chunk.start_ns, min(chunk.end_ns, end_ns))
            )
            if first < last:
                yield first, min(last, end_ns)

    def _samples(self, start_ns: int, end_ns: int, roles: frozenset[str] | None, catalogue: Catalogue) -> pa.Table:
        segment = next(chunk.segment for chunk in reversed(self.chunks) if chunk.start_ns < end_ns)
        pieces = [
            _filter_between(read_samples(self.folder / chunk.folder, roles, catalogue), "time", start_ns, end_ns)
            for chunk in self._chunks_in(start_ns, end_ns)
            if chunk.segment == segment
        ]
        return pa.concat_tables(pieces)

    def _chunks_in(self, start_ns: int, end_ns: int) -> list[Chunk]:
        return [chunk for chunk in self.chunks if chunk.start_ns < end_ns and chunk.end_ns > start_ns]

    def bounds(self, start: Time, end: Time) -> tuple[int, int]:
        """Return a window in UTC nanoseconds; raise UsageError if it contains no telemetry."""
        first_ns, last_ns = self.window
        start_ns, end_ns = time_ns(start, first_ns), time_ns(end, last_ns)
        if not self._chunks_in(start_ns, end_ns) or start_ns >= end_ns:
            raise UsageError(
                f"the window must overlap recording {self.recording}, which lasts from {utc_text(first_ns)} to "
                f"{utc_text(last_ns)}, but is from {utc_text(start_ns)} to {utc_text(end_ns)}"
            )
        return start_ns, end_ns


_AVAILABLE = "available_ns"
_DURATIONS = {"spans": "duration_ns", "requests": "latency_ns"}
"""Table whose rows become available after a duration -> column of the duration."""


def _filter_between(rows: pa.Table, column: str, start_ns: int, end_ns: int) -> pa.Table:
    times = rows[column].cast(pa.int64()).to_numpy()
    if not len(times) or (times.min() >= start_ns and times.max() < end_ns):
        return rows
    return rows.filter(pa.array((times >= start_ns) & (times < end_ns)))


def _split_available(pending: Mapping[str, pa.Table], end_ns: int) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """Divide sorted rows into those available before a time, without the column `_AVAILABLE`, and the rest."""
    available, rest = {}, {}
    for name, table in pending.items():
        count = int(np.searchsorted(table[_AVAILABLE].to_numpy(), end_ns))
        available[name] = table.slice(0, count).drop_columns([_AVAILABLE])
        rest[name] = table.slice(count)
    return available, rest
