"""The incident file, and the episodes or the recording that an import builds from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from faultset.core.documents import STRICT, check_type, parse_yaml, read_yaml_text
from faultset.core.errors import DataError, UsageError
from faultset.core.printable import quoted
from faultset.core.times import SECOND_NS, duration_text, parse_duration, rfc3339
from faultset.datasets.format.recordings import Stretch, remove_intervals
from faultset.datasets.format.schemas import LONGEST_VIEW_NS, Name
from faultset.datasets.imports.contract import build_cause, split_window
from faultset.datasets.imports.telemetry.times import parse_time

_AROUND_NS = 30 * 60 * SECOND_NS
"""Time before and after `--at`."""
_MIN_DEFAULT_BEFORE_NS = 10 * 60 * SECOND_NS
_MIN_BEFORE_NS = 10 * SECOND_NS
_JITTER = 0.2
"""The time before an incident varies by this share, as in collected episodes, so that its length reveals nothing."""
Moment = str | int | float


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Time and source of an alarm."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    time: Moment | None = None
    """Time of the alarm."""
    service: Name | None = None
    """Service that the metric belongs to."""
    metric: Name | None = None
    """Metric that raised the alarm."""


@dataclass(frozen=True, kw_only=True)
class IncidentEntry:
    """Time and cause of an incident."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    start: Moment
    """Time of the first effect."""
    end: Moment
    """End of the incident, or of the telemetry to analyse."""
    name: Name = ""
    """Name; by default, the start."""
    cause: Name | tuple[Name, ...] | None = None
    """Service or services that caused the incident."""
    fault: Name = "incident"
    """Kind of the fault in one or two words."""
    system_level: Name | None = None
    fault_type: Name | None = None
    alarm: Alarm | None = None
    before: Name = ""
    """Length of the time before it in the episode, such as 20m."""
    healthy_until: Moment | None = None
    """End of the time that is known to be healthy."""


@dataclass(frozen=True, kw_only=True)
class HealthyTime:
    """Time in which nothing was wrong."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    start: Moment
    end: Moment
    name: Name = ""


@dataclass(frozen=True, kw_only=True)
class IncidentFile:
    """Content of an incident file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    incidents: tuple[IncidentEntry, ...] = ()
    healthy: tuple[HealthyTime, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EpisodeWindow:
    """Time and label of an episode."""

    key: str
    start_ns: int
    end_ns: int
    """End of the view; for a recording, of the incident."""
    onset_ns: int | None = None
    """Start of the incident; None in healthy time."""
    reference_end_ns: int | None = None
    """End of the time that is known to be healthy; by default a share of the view."""
    causes: tuple[str, ...] = ()
    """Services at fault; empty if they are unknown or there is none."""
    kind: str = "plain"
    """incident, unlabelled or plain."""
    label: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the label."""


def read_incidents(path: Path) -> IncidentFile:
    """Read an incident file; raise UsageError if it is missing, invalid or empty."""
    content = parse_yaml(read_yaml_text(path, "incident file"), str(path))
    if isinstance(content, list):
        content = {"incidents": content}
    file = check_type({} if content is None else content, IncidentFile, str(path), error=UsageError)
    if not file.incidents and not file.healthy:
        raise UsageError(
            f"{path} must have at least one entry under incidents or healthy; add the start and end of one"
        )
    return file


def incident_windows(file: IncidentFile, data: tuple[int, int]) -> list[EpisodeWindow]:
    """Return the window of each entry; `data` is the first time of the telemetry, and the time just after its last.

    Raise UsageError for an invalid time, duration or name, and DataError if no telemetry covers an entry.
    """
    windows: list[EpisodeWindow] = []
    ended_ns = data[0]
    for incident in _sort_incidents(file):
        windows.append(_build_incident_window(incident, data, ended_ns))
        ended_ns = max(ended_ns, windows[-1].end_ns)
    for healthy in file.healthy:
        start_ns, end_ns = _read_span(healthy.start, healthy.end, healthy.name)
        _check_covered(start_ns, end_ns, healthy.name or str(healthy.start), data)
        start_ns, end_ns = _trim(start_ns, end_ns, data)
        key = healthy.name or f"healthy {rfc3339(start_ns)}"
        windows.append(EpisodeWindow(key=key, start_ns=start_ns, end_ns=end_ns))
    keys = [window.key for window in windows]
    repeated = next((key for key in keys if keys.count(key) > 1), None)
    if repeated is not None:
        raise UsageError(f"two entries are called {quoted(repeated)}; give each its own name")
    return windows


def list_recording_windows(
    file: IncidentFile, data: tuple[int, int]
) -> tuple[list[EpisodeWindow], list[tuple[int, int]]]:
    """Return the incidents of a recording, and the start and end of each healthy time; errors as `incident_windows`."""
    incidents = []
    for incident in _sort_incidents(file):
        start_ns, end_ns = _read_span(incident.start, incident.end, incident.name)
        key = incident.name or f"incident {rfc3339(start_ns)}"
        _check_covered(start_ns, end_ns, key, data)
        incidents.append(
            EpisodeWindow(
                key=key,
                start_ns=max(start_ns, data[0]),
                end_ns=min(end_ns, data[1]),
                causes=_list_causes(incident),
                kind="incident",
                label=_label_fields(incident) | {"fault": incident.fault},
            )
        )
    return incidents, [_read_span(entry.start, entry.end, entry.name) for entry in file.healthy]


def _sort_incidents(file: IncidentFile) -> list[IncidentEntry]:
    return sorted(file.incidents, key=lambda incident: _read_moment(incident.start, "start"))


def _list_causes(incident: IncidentEntry) -> tuple[str, ...]:
    return (incident.cause,) if isinstance(incident.cause, str) else tuple(incident.cause or ())


def _label_fields(incident: IncidentEntry) -> dict[str, Any]:
    label: dict[str, Any] = {"system_level": incident.system_level, "fault_type": incident.fault_type}
    return label | {"parameters": _alarm_parameters(incident.alarm)}


def _build_incident_window(incident: IncidentEntry, data: tuple[int, int], ended_ns: int) -> EpisodeWindow:
    onset_ns, end_ns = _read_span(incident.start, incident.end, incident.name)
    key = incident.name or f"incident {rfc3339(onset_ns)}"
    _check_covered(onset_ns, end_ns, key, data)
    if incident.before:
        try:
            before_ns = round(parse_duration(incident.before) * SECOND_NS)
        except (ValueError, OverflowError):
            raise UsageError(
                f"before of {quoted(key)} must be a duration such as 20m, got {quoted(incident.before)}"
            ) from None
        start_ns = onset_ns - before_ns
    else:
        share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) / 2**32
        length_ns = max(_MIN_DEFAULT_BEFORE_NS, end_ns - onset_ns)
        start_ns = max(ended_ns, onset_ns - round(length_ns * (1 + _JITTER * (2 * share - 1))))
    start_ns, end_ns = _trim(start_ns, end_ns, data)
    if onset_ns - start_ns < _MIN_BEFORE_NS:
        raise DataError(
            f"{quoted(key)} needs at least {duration_text(_MIN_BEFORE_NS / SECOND_NS)} of telemetry before its start "
            "and after any previous incident; add earlier telemetry, or leave the incident out"
        )
    causes, label = _list_causes(incident), _label_fields(incident)
    label |= {"fault": incident.fault} if causes else {}
    healthy_ns = None if incident.healthy_until is None else _read_moment(incident.healthy_until, "healthy_until")
    if healthy_ns is not None and not start_ns < healthy_ns <= onset_ns:
        raise UsageError(
            f"healthy_until of {quoted(key)} must be between {rfc3339(start_ns)} and {rfc3339(onset_ns)}, got "
            f"{rfc3339(healthy_ns)}"
        )
    return EpisodeWindow(
        key=key,
        start_ns=start_ns,
        end_ns=end_ns,
        onset_ns=onset_ns,
        reference_end_ns=healthy_ns,
        causes=causes,
        kind="incident" if causes else "unlabelled",
        label=label,
    )


def _alarm_parameters(alarm: Alarm | None) -> dict[str, Any]:
    if alarm is None:
        return {}
    source = {"service": alarm.service} if alarm.service else {}
    if source and alarm.metric:
        source["metric"] = alarm.metric
    time_ns = None if alarm.time is None else _read_moment(alarm.time, "alarm.time")
    return ({"alarm": source} if source else {}) | ({} if time_ns is None else {"alarm_ns": time_ns})


def window_around(at_ns: int, data: tuple[int, int]) -> EpisodeWindow:
    """Return the window of 30 minutes before and after a time, limited to the telemetry."""
    if not data[0] + _MIN_BEFORE_NS <= at_ns < data[1]:
        raise DataError(
            f"--at must be at least 10 s after the first telemetry ({rfc3339(data[0])}) and before the last "
            f"({rfc3339(data[1])}), got {rfc3339(at_ns)}"
        )
    start_ns, end_ns = max(data[0], at_ns - _AROUND_NS), min(data[1], at_ns + _AROUND_NS)
    return EpisodeWindow(
        key=f"at {rfc3339(at_ns)}",
        start_ns=start_ns,
        end_ns=end_ns,
        onset_ns=at_ns,
        kind="unlabelled",
        label={"parameters": {"at_ns": at_ns}},
    )


def whole_window(data: tuple[int, int]) -> EpisodeWindow:
    """Return the window of all telemetry, which counts as healthy."""
    if data[1] - data[0] > LONGEST_VIEW_NS:
        days = (data[1] - data[0]) / (86_400 * SECOND_NS)
        raise DataError(
            f"the telemetry covers {days:,.0f} days, from {rfc3339(data[0])} to {rfc3339(data[1])}, but an episode can "
            "cover at most 31; choose a part with --at or --incidents"
        )
    return EpisodeWindow(key=f"{rfc3339(data[0])} to {rfc3339(data[1])}", start_ns=data[0], end_ns=data[1])


def parse_moment(text: str) -> int:
    """Return a time from the user in nanoseconds; raise UsageError if it is invalid."""
    return _read_moment(text, "--at")


def _read_moment(value: Moment, name: str) -> int:
    time_ns = parse_time(value)
    if time_ns is None or time_ns <= 0:
        raise UsageError(f"{name} must be a time such as 2026-03-01T10:00:00Z, got {quoted(value)}")
    return time_ns


def _read_span(start: Moment, end: Moment, name: str) -> tuple[int, int]:
    start_ns, end_ns = _read_moment(start, "start"), _read_moment(end, "end")
    if end_ns <= start_ns:
        raise UsageError(f"{quoted(name or str(start))} must end after it starts, but its end is {quoted(end)}")
    return start_ns, end_ns


def _trim(start_ns: int, end_ns: int, data: tuple[int, int]) -> tuple[int, int]:
    """Trim the start or end of a window to the telemetry if more than 10 % of the window is empty there."""
    allowed_ns = (end_ns - start_ns) // 10
    start_ns = start_ns if data[0] - start_ns <= allowed_ns else data[0]
    return start_ns, end_ns if end_ns - data[1] <= allowed_ns else data[1]


def _check_covered(start_ns: int, end_ns: int, key: str, data: tuple[int, int]) -> None:
    if end_ns <= start_ns or start_ns >= data[1] or end_ns <= data[0]:
        raise DataError(
            f"no telemetry covers {quoted(key)}: the telemetry lasts from {rfc3339(data[0])} to {rfc3339(data[1])}; "
            "correct the times of the entry, or their time zone"
        )


LONG_NS = 2 * 3600 * SECOND_NS
"""Telemetry that covers more than this without a gap becomes a recording."""
_SHORTEST_CHUNK_NS, _LONGEST_CHUNK_NS = 600 * SECOND_NS, 3600 * SECOND_NS
_CHUNK_ROWS, _USUAL_CHUNKS = 400_000, 300
_SHORTEST_GAP_NS = 1800 * SECOND_NS
_VOID = {"reason": "unlabelled", "detail": "labelled neither as incident nor as healthy"}


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
    """Return the stretches of time within `data` that files cover, separated by gaps of at least half an hour.

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
    """Plan a recording from its stretches, its number of rows, its incidents and its healthy periods.

    A chunk has about 400,000 rows and lasts ten minutes to an hour. If the telemetry covers more than 300 hours, the
    maximum is a 300th of that time. Time that is neither healthy nor part of an incident is void. Without healthy
    periods, all time without an incident is healthy.
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
        voids=[{**_VOID, "start": start_ns, "end": end_ns} for _, start_ns, end_ns in rest],
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
