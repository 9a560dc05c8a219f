"""The truth of a recording: its incidents, and the stretches that are healthy or void."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultset.datasets.format.incidents import Incident, read_incidents, read_truth_rows
from faultset.datasets.format.labels import join_distinct
from faultset.datasets.format.recordings import Chunk
from faultset.datasets.format.schemas import CHUNK_TRUTH_TABLES
from faultset.datasets.format.stretches import Stretch, remove_intervals

if TYPE_CHECKING:
    import pandas as pd

_TEXTS = ("fault", "target", "cause", "level", "type", "verdict")
_TIMES = ("start", "noticed", "undone", "end")


class RecordingTruth:
    """The truth of a recording, which only scoring may read.

    Parameters
    ----------
    path
        Folder of the recording.
    chunks
        Its chunks in time order.
    segments
        Its stretches without a gap.
    """

    def __init__(self, path: Path, chunks: Sequence[Chunk], segments: Sequence[Stretch]) -> None:
        self._path, self._chunks, self._segments = path, tuple(chunks), tuple(segments)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The incidents in order of their start, with all fields."""
        return read_incidents(self._path, self._chunks)

    def bounds(self, incident: Incident) -> tuple[int, int]:
        """Return the start and end of an incident; without an end, it lasts until its segment ends."""
        start_ns = incident.start_ns
        segment_end_ns = next(
            (segment.end_ns for segment in self._segments if start_ns < segment.end_ns), self._segments[-1].end_ns
        )
        end_ns = segment_end_ns if incident.end_ns is None else min(incident.end_ns, segment_end_ns)
        return start_ns, max(start_ns, end_ns)

    @cached_property
    def void_stretches(self) -> tuple[Stretch, ...]:
        """Stretches that are not scored, for instance because the host was disturbed or nothing is labelled."""
        rows = self.rows("voids")
        return tuple(Stretch(self._path.name, row["start"], row["end"]) for row in rows)

    @cached_property
    def healthy_stretches(self) -> tuple[Stretch, ...]:
        """Stretches without an incident or a void; none crosses the end of a segment. They may contain decoys."""
        incidents = [self._unhealthy_bounds(incident) for incident in self.incidents]
        voids = [(void.start_ns, void.end_ns) for void in self.void_stretches]
        return tuple(remove_intervals(self._segments, [*incidents, *voids]))

    def _unhealthy_bounds(self, incident: Incident) -> tuple[int, int]:
        """Return the bounds of an incident, from the start of its injection if that is earlier."""
        start_ns, end_ns = self.bounds(incident)
        return min(start_ns, incident.inject_start_ns or start_ns), end_ns

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a truth table, with times as integers."""
        return list(read_truth_rows(self._path, self._chunks, table))

    def incident_frame(self) -> pd.DataFrame:
        """See `Recording.incidents`."""
        import pandas as pd

        rows = {incident.incident: self._row(incident) for incident in self.incidents}
        columns = [*_TEXTS, *_TIMES, "duration_s", "is_scored", "start_ns", "end_ns"]
        index = pd.Index(list(rows), name="incident", dtype=object)
        frame = pd.DataFrame(list(rows.values()), index=index, columns=columns, dtype=object)
        for name in _TIMES:
            frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
        return frame.astype({"duration_s": "float64", "is_scored": bool, "start_ns": "int64", "end_ns": "int64"})

    def _row(self, incident: Incident) -> dict[str, Any]:
        start_ns, end_ns = self.bounds(incident)
        return {
            "fault": incident.fault,
            "target": join_distinct(incident.targets) or None,
            "cause": join_distinct(cause.service for cause in incident.root_causes) or None,
            "level": incident.system_level,
            "type": incident.fault_type,
            "verdict": incident.verdict,
            "start": start_ns,
            "noticed": incident.first_manifest_ns,
            "undone": incident.recover_start_ns,
            "end": end_ns,
            "duration_s": (end_ns - start_ns) / 1e9,
            "is_scored": not any(void.overlaps(start_ns, end_ns) for void in self.void_stretches),
            "start_ns": start_ns,
            "end_ns": end_ns,
        }

    def frame(self, table: str) -> pd.DataFrame:
        """Return a truth table with times as UTC timestamps."""
        import pandas as pd

        schema = CHUNK_TRUTH_TABLES[table]
        names = [name for name in schema.names if name != "episode"]
        frame = pd.DataFrame(self.rows(table), columns=names, dtype=object)
        for name in ("start", "end", "time"):
            if name in names:
                frame[name] = pd.to_datetime(frame[name].astype("Int64"), unit="ns", utc=True)
        return frame.infer_objects()
