"""Plan the recording of long telemetry: its stretches, the windows of its chunks, and its incidents as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from faultset.core.times import SECOND_NS
from faultset.datasets.format.recordings import Stretch, remove_intervals
from faultset.datasets.format.schemas import LONGEST_VIEW_NS
from faultset.datasets.imports.contract import build_cause
from faultset.datasets.imports.recordings import split_window
from faultset.datasets.imports.telemetry.incidents import EpisodeWindow

LONG_NS = 2 * 3600 * SECOND_NS
"""Telemetry that covers more than this without a gap becomes a recording."""
_SHORTEST_CHUNK_NS, _LONGEST_CHUNK_NS = 600 * SECOND_NS, 3600 * SECOND_NS
_CHUNK_ROWS, _USUAL_CHUNKS = 400_000, 300
_SHORTEST_GAP_NS = 1800 * SECOND_NS


@dataclass(frozen=True, kw_only=True)
class TelemetryRecordingPlan:
    """Stretches, incidents and void time of a recording.

    Attributes
    ----------
    stretches
        Start and end of each period with telemetry.
    chunk_ns
        Length of its chunks.
    incidents
        Rows of the table `incidents`, as for `ForeignRecording`.
    voids
        Rows of the table `voids`.
    """

    stretches: Sequence[Sequence[int]]
    chunk_ns: int
    incidents: Sequence[Mapping[str, Any]] = ()
    voids: Sequence[Mapping[str, Any]] = ()

    def windows(self) -> Iterator[tuple[int, int]]:
        """Yield the window of each chunk in time order."""
        for start_ns, end_ns in self.stretches:
            yield from split_window(start_ns, end_ns, self.chunk_ns)


def find_stretches(ranges: Sequence[tuple[int, int]], data: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the stretches of time that files cover, separated by gaps of at least half an hour.

    Parameters
    ----------
    ranges
        First and last time of each file.
    data
        Start and end of the time to use.

    Examples
    --------
    >>> hour = 3600 * 10**9
    >>> find_stretches([(0, hour), (hour // 2, 2 * hour), (5 * hour, 6 * hour)], (0, 6 * hour + 1))
    [(0, 7200000000001), (18000000000000, 21600000000001)]
    """
    stretches: list[tuple[int, int]] = []
    for first_ns, last_ns in sorted(ranges):
        start_ns, end_ns = max(first_ns, data[0]), min(last_ns + 1, data[1])
        if start_ns >= end_ns:
            continue
        if stretches and start_ns - stretches[-1][1] < _SHORTEST_GAP_NS:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end_ns)
        else:
            stretches.append((start_ns, end_ns))
    return stretches


def plan_recording(
    stretches: Sequence[tuple[int, int]],
    rows: int,
    incidents: Sequence[EpisodeWindow],
    healthy: Sequence[tuple[int, int]],
) -> TelemetryRecordingPlan:
    """Plan a recording.

    Parameters
    ----------
    stretches
        Start and end of each period with telemetry.
    rows
        Number of rows of all tables. A chunk has about 400,000 rows and lasts ten minutes to an hour. If the telemetry
        covers more than 300 hours, the maximum is a 300th of that time.
    incidents
        Windows from the start to the end of each incident.
    healthy
        Start and end of each healthy period; time that is neither healthy nor part of an incident is void. If empty,
        all time without an incident is healthy.
    """
    covered_ns = sum(end_ns - start_ns for start_ns, end_ns in stretches)
    longest_ns = min(max(_LONGEST_CHUNK_NS, covered_ns // _USUAL_CHUNKS), LONGEST_VIEW_NS)
    chunk_ns = min(max(_SHORTEST_CHUNK_NS, covered_ns * _CHUNK_ROWS // max(1, rows)), longest_ns)
    labelled = [*healthy, *((window.start_ns, window.end_ns) for window in incidents)]
    rest = remove_intervals([Stretch("", *stretch) for stretch in stretches], labelled) if healthy else []
    return TelemetryRecordingPlan(
        stretches=list(stretches),
        chunk_ns=chunk_ns,
        incidents=[_incident_row(window) for window in incidents],
        voids=[
            {
                "start": start_ns,
                "end": end_ns,
                "reason": "unlabelled",
                "detail": "labelled neither as incident nor as healthy",
            }
            for _, start_ns, end_ns in rest
        ],
    )


def _incident_row(window: EpisodeWindow) -> dict[str, Any]:
    return {
        **window.label,
        "parameters": {"name": window.key, **window.label["parameters"]},
        "targets": list(window.causes),
        "root_causes": [build_cause(cause) for cause in window.causes],
        "inject_start": window.start_ns,
        "recover_start": window.end_ns,
    }
