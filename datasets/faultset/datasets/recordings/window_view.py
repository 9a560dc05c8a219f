"""A window of a recording as the view of an episode, without writing files."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.core.times import step_seconds
from faultset.datasets.format.row_order import in_one_chunk, order_of
from faultset.datasets.format.schemas import time_column
from faultset.datasets.format.stretches import Stretch
from faultset.datasets.recordings.view import RecordingView
from faultset.datasets.table_reading import Filters, schema_of
from faultset.datasets.view_ends import select_available_rows
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd


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
        """See `EpisodeView.table`."""
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
        """See `EpisodeView.pieces`."""
        rows = self.table(name, columns)
        yield tuple(rows[column] for column in columns)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        """See `EpisodeView.wide`."""
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
