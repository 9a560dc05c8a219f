"""The result of `diagnose`, and the measured hit rates of the panel.

It is called an analysis because `Diagnosis` is the answer of a diagnoser: the system level and type of a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from faultset.baselines.contract import Evidence
from faultset.core.documents import check_type, parse_json
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


CALIBRATION_FILE = "calibration.json"


@dataclass(frozen=True, kw_only=True)
class MeasuredData:
    """Results of the panel on one collection of labelled episodes."""

    data: str
    """Name of the collection."""
    incidents: int
    """Episodes with a fault."""
    named: int
    """Incidents with a suspect."""
    right: int
    """Incidents whose first suspect is a root cause."""
    right_in_three: int
    """Incidents with a root cause among the first three suspects."""
    control_right: float
    """Expected hits of the control, which may give several services the same score."""
    healthy: int = 0
    """Episodes without a fault."""
    healthy_named: int = 0
    """Episodes without a fault, but with a suspect."""


@dataclass(frozen=True, kw_only=True)
class PanelCalibration:
    """The panel that was measured, its limit and its hit rates."""

    panel: tuple[str, ...]
    control: str
    limit: float
    """Strength of evidence, in powers of ten, above which suspects are named."""
    oracle: tuple[HitRate, ...]
    """Hit rates if the time of the incident is known, by agreement."""
    detected: tuple[HitRate, ...]
    """Hit rates if detectors find the time."""
    data: Mapping[str, tuple[MeasuredData, ...]] = field(default_factory=dict)
    """Protocol -> results by collection."""

    def hit_rate(self, agreeing: int, *, oracle: bool) -> HitRate:
        """Return the hit rate for a number of agreeing methods; all counts are zero if it was never observed."""
        rates = self.oracle if oracle else self.detected
        empty = HitRate(agreeing=agreeing, incidents=0, right=0, right_in_three=0, healthy=0)
        return next((rate for rate in rates if rate.agreeing == agreeing), empty)


@cache
def read_calibration() -> PanelCalibration:
    """Return the calibration that comes with the package."""
    text = (files("faultset.evaluators.diagnosis") / CALIBRATION_FILE).read_bytes()
    return check_type(parse_json(text, CALIBRATION_FILE), PanelCalibration, CALIBRATION_FILE)
