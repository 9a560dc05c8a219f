"""The result of `diagnose`.

It is called an analysis because `Diagnosis` is the answer of a diagnoser: the system level and type of a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from faultset.baselines.api.contract import Evidence
from faultset.evaluators.results.rows import Status

GIVEN, WITHOUT_ALARM = "given", "end of the reference"
"""Sources of an incident's time other than a detector."""
ObservationKind = Literal["change", "metric", "log lines", "calls"]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """A change in the telemetry of a service."""

    service: str
    kind: ObservationKind
    subject: str
    """Object, metric, template of log lines, or "calls"."""
    time_ns: int
    """When it began, UTC nanoseconds."""
    strength: float
    """Comparable among observations of one kind."""
    text: str
    """A sentence with the values before and after."""


@dataclass(frozen=True, kw_only=True)
class DetectorAlarm:
    """The answer of a detector."""

    detector: str
    time_ns: int | None
    """When it raised its alarm, UTC nanoseconds; None for no alarm."""
    status: Status = "ok"
    reason: str = ""
    """Why it has no answer, if its status is not "ok"."""


@dataclass(frozen=True, kw_only=True)
class PanelAnswer:
    """The answer of a localizer."""

    method: str
    kind: str
    scores: Mapping[str, float] = field(default_factory=dict)
    """Service -> suspicion, most suspicious first; empty if the method abstains or has no answer."""
    evidence: tuple[Evidence, ...] = ()
    status: Status = "ok"
    reason: str = ""
    """Why it has no answer, if its status is not "ok"."""
    seconds: float = 0.0

    @property
    def first(self) -> str | None:
        """The most suspicious service; None if there is none."""
        return next(iter(self.scores), None)


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A service that may be the root cause."""

    service: str
    score: float
    """Mean of 1/rank over the methods that answered, from 0 to 1."""
    named_first_by: tuple[str, ...]
    """Methods of the panel that rank it first."""
    observations: tuple[Observation, ...]
    """Changes in its telemetry, in time order."""


@dataclass(frozen=True, kw_only=True)
class HitRate:
    """How often the first suspect was right on labelled incidents with the same agreement."""

    agreeing: int
    """Number of panel methods that rank the first suspect first."""
    incidents: int
    right: int
    right_in_three: int
    """Incidents in which one of the first three suspects was right."""
    healthy: int
    """Episodes without a fault in which suspects were named with this agreement."""

    @property
    def share(self) -> float:
        """Share of incidents whose first suspect was right."""
        return self.right / self.incidents if self.incidents else 0.0


@dataclass(frozen=True, kw_only=True)
class IncidentAnalysis:
    """The answer of `diagnose` about one episode."""

    episode: str
    """Opaque id of the episode."""
    app: str
    """Name of the application."""
    window_ns: tuple[int, int]
    """Half-open window of all telemetry, UTC nanoseconds."""
    reference_ns: tuple[int, int]
    """Half-open healthy window, UTC nanoseconds."""
    moment_ns: int
    """Time of the alarm given to localizers, UTC nanoseconds."""
    moment_from: str
    """`GIVEN`, the name of a detector, or `WITHOUT_ALARM`."""
    alarms: tuple[DetectorAlarm, ...]
    """Answers of the detectors."""
    answers: tuple[PanelAnswer, ...]
    """Answers of the panel."""
    control: PanelAnswer
    """Answer of the strongest control."""
    strength: float
    """Evidence of the leading method against its first suspect, in powers of ten; 0 if it has none."""
    limit: float
    """Strength that few fault-free episodes exceed; no suspect is named at or below it. 0 if it was not measured."""
    suspects: tuple[Suspect, ...]
    """Most suspicious first; empty for "no evidence"."""
    hit_rate: HitRate | None
    """None without suspects, or if the hit rate of the panel was not measured."""

    @property
    def agreeing(self) -> int:
        """Return how many methods of the panel name the first suspect first."""
        return len(self.suspects[0].named_first_by) if self.suspects else 0

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as JSON data."""
        return asdict(self) | {"agreeing": self.agreeing}
