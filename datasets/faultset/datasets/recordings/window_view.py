"""Windows and chunks of a recording as views of episodes, without writing files."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as arrow_compute

from faultset.core.times import step_seconds
from faultset.datasets.format.context import EpisodeContext, RecordingContext
from faultset.datasets.format.incidents import Incident
from faultset.datasets.format.labels import Label, join_distinct
from faultset.datasets.format.recordings import Chunk, Stretch
from faultset.datasets.format.schemas import TIME, time_column
from faultset.datasets.format.storage import in_one_chunk, order_of
from faultset.datasets.recordings.view import RecordingView
from faultset.datasets.table_reading import Filters, schema_of
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


pc: Any = arrow_compute
# type checkers do not see its functions, which are created at import
UNFINISHED = "unfinished"


def select_available_rows(name: str, table: pa.Table, end_ns: int) -> pa.Table:
    """Return the rows of a table that were available at `end_ns`, UTC nanoseconds.

    Requests that were answered later become unfinished.
    """
    end = pa.scalar(end_ns, type=TIME)
    times = table[time_column(name)]
    table = table.filter(pc.less(times, end))
    if name == "spans":
        ended = pc.add(table["time"].cast(pa.int64()), table["duration_ns"])
        return table.filter(pc.less(ended, end_ns))
    if name != "requests":
        return table
    scheduled = table["scheduled"].cast(pa.int64())
    answered = pc.add(scheduled, pc.fill_null(table["latency_ns"], 0))
    is_late = pc.fill_null(pc.greater_equal(answered, end_ns), False)
    for column in ("latency_ns", "status"):
        table = _replace_column(
            table, column, pc.if_else(is_late, pa.scalar(None, table.schema.field(column).type), table[column])
        )
    table = _replace_column(
        table, "sent", pc.if_else(pc.less(table["sent"], end), table["sent"], pa.scalar(None, TIME))
    )
    outcome = pc.if_else(is_late, UNFINISHED, table["outcome"].cast(pa.string()))
    return _replace_column(table, "outcome", outcome)


def _replace_column(table: pa.Table, column: str, values: pa.ChunkedArray | pa.Array) -> pa.Table:
    field = table.schema.field(column)
    if pa.types.is_dictionary(field.type):
        encoded = pa.chunked_array([values]) if isinstance(values, pa.Array) else values
        values = encoded.cast(field.type.value_type).dictionary_encode()
    return table.set_column(table.schema.get_field_index(column), field, values.cast(field.type))


class WindowView(EpisodeView):
    """The telemetry of a stretch of a recording that was available at the end of the stretch.

    Tables that were read are kept in memory. `faultset.datasets.recordings.cuts.cut_view` writes files instead, for
    methods in other processes.

    Parameters
    ----------
    recording
        The recording without its truth.
    stretch
        Half-open window in one segment.
    reference_end_ns
        End of the part that is assumed to be healthy; by default the end of the window.
    """

    def __init__(self, recording: RecordingView, stretch: Stretch, reference_end_ns: int | None = None) -> None:
        self._recording, self._folder = recording, recording.folder
        self._context = recording.context.of_episode(
            recording.recording,
            start_ns=stretch.start_ns,
            end_ns=stretch.end_ns,
            reference_end_ns=stretch.end_ns if reference_end_ns is None else reference_end_ns,
        )
        self._tables: dict[str, pa.Table] = {}

    def table(self, name: str, columns: Sequence[str] | None = None, filters: Filters = None) -> pa.Table:
        schema_of(name, self._context.tables)
        start_ns, end_ns = self.window
        rows = self._tables.get(name)
        if rows is None or filters is not None:
            rows = in_one_chunk(
                select_available_rows(name, self._recording.table(name, start_ns, end_ns, None, filters), end_ns)
            )
            order = order_of(name, rows)
            rows = rows if order is None else rows.take(pa.array(order))
            if filters is None:
                self._tables[name] = rows
        return rows if columns is None else rows.select(list(columns))

    def pieces(self, name: str, *columns: str) -> Iterator[tuple[pa.ChunkedArray, ...]]:
        rows = self.table(name, columns)
        yield tuple(rows[column] for column in columns)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        return self._recording.wide(*self.window, step_seconds(step_s), roles)

    @property
    def file_stamps(self) -> Hashable:
        """See `EpisodeView.file_stamps`; chunks never change."""
        return str(self._folder), *self.window

    def _silent_steps(self, step_ns: int) -> npt.NDArray[np.bool_]:
        start_ns, end_ns = self.window
        silent = np.ones(-(-(end_ns - start_ns) // step_ns), dtype=bool)
        for name in ("metrics", "spans", "logs"):
            times = self.table(name, [time_column(name)])[0].cast(pa.int64()).to_numpy()
            silent[(times - start_ns) // step_ns] = False
        return np.zeros_like(silent) if silent.all() else silent


def window_views(recording: RecordingView, stretches: Iterable[Stretch], length_s: float) -> Iterator[WindowView]:
    """Yield the views of consecutive windows of some stretches, for instance to find feature columns.

    Parameters
    ----------
    stretches
        Stretches, for instance of a split; stretches of other recordings are left out.
    length_s
        Length of a window; the last one of a stretch may be shorter.
    """
    length_ns = round(length_s * 1e9)
    for stretch in stretches:
        for segment in recording.segments if stretch.recording == recording.recording else ():
            inside = segment.within(stretch.start_ns, stretch.end_ns)
            for start_ns in range(inside.start_ns, inside.end_ns, length_ns) if inside else ():
                end_ns = min(start_ns + length_ns, stretch.end_ns, segment.end_ns)
                yield WindowView(recording, Stretch(recording.recording, start_ns, end_ns))


def chunk_context(context: RecordingContext, chunk: Chunk) -> EpisodeContext:
    """Return the context of a chunk as an episode with the recording's id; the reference is the whole chunk."""
    return context.of_episode(
        chunk.recording, start_ns=chunk.start_ns, end_ns=chunk.end_ns, reference_end_ns=chunk.end_ns
    )


class ChunkView(EpisodeView):
    """The telemetry of one chunk."""

    def __init__(self, recording: Path, context: RecordingContext, chunk: Chunk) -> None:
        self._folder = recording / chunk.folder
        self._context = chunk_context(context, chunk)


def incidents_in(incidents: Iterable[Incident], chunk: Chunk) -> list[Incident]:
    """Return the incidents that were under way in a chunk."""
    return [
        incident
        for incident in incidents
        if (incident.inject_start_ns or 0) < chunk.end_ns and (incident.end_ns or chunk.end_ns) >= chunk.start_ns
    ]


def label_of_chunk(incidents: Iterable[Incident], chunk: Chunk) -> Label:
    """Return a label with the faults of all incidents in a chunk, to search the chunk for their names."""
    inside = incidents_in(incidents, chunk)
    return Label(
        episode=chunk.recording,
        fault=join_distinct(incident.fault or "" for incident in inside) or None,
        no_fault_kind=None if inside else "plain",
        targets=tuple(dict.fromkeys(target for incident in inside for target in incident.targets)),
        root_causes=(),
        system_level=None,
        fault_type=None,
        paper_number=None,
        category=None,
        parameters={incident.incident: dict(incident.parameters) for incident in inside},
        inject_start_ns=None,
        inject_done_ns=None,
        effective_ns=None,
        recover_start_ns=None,
        recover_done_ns=None,
        healthy_again_ns=None,
        verdict="unknown" if inside else "none",
        first_manifest_ns=None,
        seed=0,
        faults=tuple(fault for incident in inside for fault in incident.faults),
        view_start_ns=chunk.start_ns,
        view_end_ns=chunk.end_ns,
        reference_end_ns=chunk.end_ns,
        profile="chunk",
        workload={},
        host={},
        clock_offsets={},
    )
