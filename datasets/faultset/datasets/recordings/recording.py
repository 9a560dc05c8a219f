"""A recording with its truth: incidents, decoys, load and void stretches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from faultset.core.times import Time
from faultset.datasets.format.context import RecordingContext
from faultset.datasets.format.incidents import RecordingTruth, read_chunk_journals
from faultset.datasets.format.recordings import listed_chunks
from faultset.datasets.format.version_files import FileRecord
from faultset.datasets.recordings.cuts import CutLengths, write_cuts
from faultset.datasets.recordings.view import RecordingView, TimeSlice

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


Opened = TypeVar("Opened")
"""An opened dataset."""


@dataclass(frozen=True, kw_only=True)
class Recording(Generic[Opened]):
    """Hours of telemetry with incidents: the view that methods get, and the ground truth.

    Files are read on access.
    """

    id: str
    """Opaque id."""
    path: Path
    """Its folder."""
    open_cuts: Callable[[Path], Opened] = field(repr=False)
    """Opens the dataset of its episodes."""
    files: Mapping[str, FileRecord] = field(default_factory=dict, repr=False)
    """Path below the folder -> record of the file in the version; only the chunks of the version are read."""

    @cached_property
    def view(self) -> RecordingView:
        return RecordingView(self.path, listed_chunks(self.files) or None)

    @property
    def context(self) -> RecordingContext:
        return self.view.context

    @property
    def start_ns(self) -> int:
        """Start of its telemetry, UTC nanoseconds."""
        return self.view.window[0]

    @property
    def end_ns(self) -> int:
        """End of its telemetry, exclusive, UTC nanoseconds."""
        return self.view.window[1]

    @property
    def duration_s(self) -> float:
        """Seconds of telemetry, without the gaps between segments."""
        return sum(segment.length_s for segment in self.view.segments)

    def wide(
        self, start: Time = None, end: Time = None, step_s: float | str = 1.0, roles: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """See `RecordingView.wide`."""
        return self.view.wide(start, end, step_s, roles)

    def table(self, name: str, start: Time = None, end: Time = None) -> pa.Table:
        """See `RecordingView.table`."""
        return self.view.table(name, start, end)

    def stream(
        self, step_s: float | str, tables: Iterable[str] = ("metrics", "spans", "logs", "events")
    ) -> Iterator[TimeSlice]:
        """See `RecordingView.stream`."""
        return self.view.stream(step_s, tables)

    @cached_property
    def truth(self) -> RecordingTruth:
        """Its incidents with all fields, and the stretches that are healthy or void."""
        return RecordingTruth(self.path, self.view.chunks, self.view.segments)

    def incidents(self) -> pd.DataFrame:
        """Return the incidents as a table indexed by their ids.

        Returns
        -------
        pandas.DataFrame
            `fault`, `target`, `cause` (faulty services), `level`, `type` and `verdict` as text; `start`, `noticed`
            (first second in which clients noticed the fault), `undone` and `end` (healthy again, or the end of the
            segment) as UTC timestamps; `duration_s` from start to end; `is_scored`, false if the incident overlaps a
            void stretch; `start_ns` and `end_ns` as integers.
        """
        return self.truth.incident_frame()

    def decoys(self) -> pd.DataFrame:
        """Return the harmless changes: `decoy`, `service`, `start`, `end`, `parameters`."""
        return self.truth.frame("decoys")

    def load(self) -> pd.DataFrame:
        """Return the load by interval: `start`, `end`, `planned_rps`, `requests`."""
        return self.truth.frame("load")

    def voids(self) -> pd.DataFrame:
        """Return the stretches that are not scored: `start`, `end`, `reason`, `detail`."""
        return self.truth.frame("voids")

    def evidence(self) -> pd.DataFrame:
        """Return the checks behind the labels, one per row; `incident` is null for checks of the recording."""
        return self.truth.frame("evidence")

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The recorded changes to the platform, in order."""
        return read_chunk_journals(self.path, self.view.chunks)

    def episodes(
        self, *, before_s: float, after_s: float, healthy: int | None = None, out: Path | str | None = None
    ) -> Opened:
        """Cut ordinary episodes out of the recording, and open them as a dataset.

        Each incident becomes an episode with a view of `before_s + after_s` seconds, and healthy stretches become
        episodes without a fault. As in collected episodes, the healthy time before the onset is drawn within 20 % of
        `before_s`, and the reference is 80 % of `before_s` long. Views end before the fault is undone or another
        incident starts; therefore, the view of a short incident starts earlier. An incident is left out if the healthy
        time before it is too short, if another incident is under way at its onset, or if it overlaps a void stretch.

        Parameters
        ----------
        before_s
            Mean length of the healthy time before the onset.
        after_s
            Mean length of the view after the onset.
        healthy
            Maximum number of episodes without a fault; by default as many as fit.
        out
            Folder of the dataset; must not exist or must be empty. By default the cache of the recording's dataset.

        Raises
        ------
        DataError
            No incident and no healthy stretch is long enough.
        """
        lengths = CutLengths(before_s=before_s, after_s=after_s)
        hashes = sorted(record.sha256 for record in self.files.values())
        folder = write_cuts([(self.view, self.truth)], lengths, healthy=healthy, hashes=hashes, out=out)
        return self.open_cuts(folder)
