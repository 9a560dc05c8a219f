"""Alarms of detectors over recordings, compared with incidents, decoys and void stretches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from faultset.core.times import SECOND_NS
from faultset.datasets.format.context import IMPORTED
from faultset.datasets.format.incidents import ANOMALY
from faultset.datasets.format.recordings import subtract_intervals
from faultset.datasets.recordings.recording import Recording
from faultset.evaluators.recordings.detection_plan import DetectionWindow, choose_reference_ns
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.alarms import (
    GAP_S,
    Affiliation,
    Range,
    RangeVolumes,
    compute_affiliation,
    compute_range_volumes,
    list_alarms,
    merge_runs,
)
from faultset.evaluators.scoring.detection import buffer_samples

DECOY_S = 60
"""An alarm belongs to a decoy if it begins during the decoy or at most this many seconds after it."""
GAP_STEPS = 3
"""Alarms that are at most this many sampling steps apart are one alarm."""
HEADLINE_VERDICTS = ("manifest", "unknown")
"""Verdicts of headline incidents, on which the main scores are based: noticed by clients, or imported without one."""
Outcome = Literal["true", "repeated", "other", "decoy", "false", "void"]
"""Where an alarm begins.

- true: in a headline incident, as its first alarm
- repeated: in a headline incident, as a later alarm
- other: in a scored incident that is not a headline incident
- decoy: during a harmless change or shortly after it
- void: in a void stretch, or in an incident that is not scored
- false: anywhere else
"""


@dataclass(frozen=True, kw_only=True)
class ScoredIncident:
    """An incident with the data that scores need."""

    incident: str
    recording: str
    title: str
    """Fault and targets."""
    start_ns: int
    end_ns: int
    cluster: tuple[Hashable, ...]
    """Application, fault and targets; for an anomaly in an imported series, its id instead of targets."""
    headline: bool
    """Whether clients noticed it, or it was imported without a verdict."""
    scored: bool
    """Whether it is scored: it begins in watched time and overlaps no void stretch."""


@dataclass(frozen=True, kw_only=True)
class RecordingFacts:
    """The watched time of a recording and its truth."""

    recording: str
    app: str
    start_ns: int
    end_ns: int
    watched: tuple[Range, ...]
    incidents: tuple[ScoredIncident, ...]
    decoys: tuple[Range, ...]
    """Harmless changes, each with the time in which an alarm belongs to it."""
    voids: tuple[Range, ...]
    step_ns: int
    reference_s: float
    """Length of the reference of each window, in seconds."""

    @classmethod
    def of(cls, recording: Recording[Any], windows: Sequence[DetectionWindow]) -> RecordingFacts:
        """Collect the facts of a recording and of its tested windows."""
        truth, context = recording.truth, recording.context
        watched = tuple(merge_runs(sorted((window.start_ns, window.end_ns) for window in windows), 0))
        verdicts = HEADLINE_VERDICTS if context.platform == IMPORTED else HEADLINE_VERDICTS[:1]
        incidents = []
        for incident in truth.incidents:
            start_ns, end_ns = truth.bounds(incident)
            is_void = any(void.overlaps(start_ns, end_ns) for void in truth.void_stretches)
            incidents.append(
                ScoredIncident(
                    incident=incident.incident,
                    recording=recording.id,
                    title=" on ".join(filter(None, (incident.fault, ", ".join(incident.targets)))),
                    start_ns=start_ns,
                    end_ns=end_ns,
                    cluster=(context.app, incident.fault, *sorted(incident.targets))
                    if incident.fault != ANOMALY
                    else (context.app, incident.fault, incident.incident),
                    headline=incident.verdict in verdicts,
                    scored=not is_void and any(begin <= start_ns < end for begin, end in watched),
                )
            )
        return cls(
            recording=recording.id,
            app=context.app,
            start_ns=recording.start_ns,
            end_ns=recording.end_ns,
            watched=watched,
            incidents=tuple(incidents),
            decoys=tuple((row["start"], row["end"] + DECOY_S * SECOND_NS) for row in truth.rows("decoys")),
            voids=tuple((void.start_ns, void.end_ns) for void in truth.void_stretches),
            step_ns=round(context.sampling_step_s * SECOND_NS),
            reference_s=choose_reference_ns(recording) / SECOND_NS,
        )

    @property
    def gap_ns(self) -> int:
        """Alarms that are at most this far apart are one alarm."""
        return max(GAP_S * SECOND_NS, GAP_STEPS * self.step_ns)

    @cached_property
    def watched_ns(self) -> int:
        """Length of the watched time."""
        return sum(end - start for start, end in self.watched)

    @property
    def quiet(self) -> list[Range]:
        """The watched time without incidents, decoys and void stretches, in which alarms are false."""
        busy = [(incident.start_ns, incident.end_ns) for incident in self.incidents]
        return subtract_intervals(self.watched, [*busy, *self.decoys, *self.voids])

    @cached_property
    def scored_headline(self) -> list[ScoredIncident]:
        return [incident for incident in self.incidents if incident.scored and incident.headline]


@dataclass(frozen=True, kw_only=True)
class ScoredAlarm:
    """An alarm with its outcome."""

    start_ns: int
    end_ns: int
    outcome: Outcome
    incident: str | None = None


@dataclass(frozen=True, kw_only=True)
class DetectorRun:
    """The answers of one detector, with one seed, to the windows of a recording."""

    facts: RecordingFacts
    seed: int
    rows: tuple[ResultRow, ...]
    """One row for each window, in time order."""

    @cached_property
    def alarms(self) -> tuple[ScoredAlarm, ...]:
        """The alarms in time order; alarms with a short gap, even across windows, are joined."""
        raised = [alarm for row in self.rows if row.status == "ok" for alarm in _list_alarms(row)]
        detected: set[str] = set()
        scored = []
        for start_ns, end_ns in merge_runs(sorted(raised), self.facts.gap_ns):
            outcome, incident = self._classify(start_ns, detected)
            scored.append(ScoredAlarm(start_ns=start_ns, end_ns=end_ns, outcome=outcome, incident=incident))
            detected |= {incident} if incident else set()
        return tuple(scored)

    def _classify(self, start_ns: int, detected: set[str]) -> tuple[Outcome, str | None]:
        if _is_inside(start_ns, self.facts.voids):
            return "void", None
        inside = [item for item in self.facts.incidents if item.start_ns <= start_ns < item.end_ns]
        if inside:
            headline = [item for item in inside if item.scored and item.headline]
            if headline:
                new = next((item for item in headline if item.incident not in detected), None)
                return ("repeated", headline[0].incident) if new is None else ("true", new.incident)
            other = next((item.incident for item in inside if item.scored), None)
            return ("void", None) if other is None else ("other", other)
        return ("decoy" if _is_inside(start_ns, self.facts.decoys) else "false"), None

    def count(self, *outcomes: Outcome) -> int:
        """Return the number of alarms with these outcomes."""
        return sum(alarm.outcome in outcomes for alarm in self.alarms)

    def compute_delays_s(self) -> dict[str, float]:
        """Return the seconds from the start of each scored incident to its first alarm; infinite for a miss."""
        delays = {item.incident: np.inf for item in self.facts.incidents if item.scored}
        starts = {item.incident: item.start_ns for item in self.facts.incidents}
        for alarm in self.alarms:
            if alarm.incident is not None and np.isinf(delays[alarm.incident]):
                delays[alarm.incident] = (alarm.start_ns - starts[alarm.incident]) / SECOND_NS
        return delays

    def compute_chances(self) -> dict[str, float]:
        """Return the probability that the same alarms at random times detect each scored headline incident.

        The alarms keep their order and distances and are shifted together around the watched time, by any amount with
        equal probability.
        """
        total = self.facts.watched_ns
        starts = np.array([self._watched_before(alarm.start_ns) for alarm in self.alarms])
        chances = {}
        for item in self.facts.scored_headline:
            first, last = self._watched_before(item.start_ns), self._watched_before(item.end_ns)
            begins = (first - starts) % total
            hits = [(int(begin), int(begin) + last - first) for begin in begins.tolist()]
            # a shift beyond the end of the circle continues at its start
            pieces = [piece for a, b in hits for piece in ((a, min(b, total)), (0, max(0, b - total)))]
            chances[item.incident] = min(1.0, sum(b - a for a, b in merge_runs(sorted(pieces), 0)) / total)
        return chances

    def _watched_before(self, time_ns: int) -> int:
        """Return the watched nanoseconds before a time."""
        return sum(max(0, min(time_ns, end) - start) for start, end in self.facts.watched)

    @cached_property
    def samples(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Times and scores of all samples; scores are in units of the threshold, so that windows are comparable."""
        times, scores = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        for row in self.rows:
            if row.status != "ok" or not row.answer.get("times_ns"):
                continue
            threshold = row.answer["threshold"]
            unit = threshold if isinstance(threshold, float | int) and np.isfinite(threshold) and threshold > 0 else 1.0
            times.append(np.asarray(row.answer["times_ns"], dtype=np.int64))
            scores.append(np.asarray(row.answer["scores"], dtype=float) / unit)
        return np.concatenate(times), np.concatenate(scores)

    @cached_property
    def volumes(self) -> RangeVolumes:
        """Volumes under the ROC and precision-recall surfaces; samples in other incidents and voids are left out."""
        times, scores = self.samples
        headline = [(item.start_ns, item.end_ns) for item in self.facts.scored_headline]
        others = [
            (item.start_ns, item.end_ns) for item in self.facts.incidents if item not in self.facts.scored_headline
        ]
        positive = _are_inside(times, headline)
        used = positive | ~_are_inside(times, [*others, *self.facts.voids])
        if not headline:
            return RangeVolumes(math.nan, math.nan)
        if not positive.any():
            # without scores nothing is detected at any threshold
            return RangeVolumes(0.0, 0.0)
        return compute_range_volumes(positive[used], scores[used], buffer_samples(times))

    @cached_property
    def affiliation(self) -> Affiliation:
        """Affiliation metrics of alarms and headline incidents, in watched time."""
        faults = [
            (self._watched_before(item.start_ns), self._watched_before(item.end_ns))
            for item in self.facts.scored_headline
        ]
        alarms = [(self._watched_before(a.start_ns), self._watched_before(a.end_ns)) for a in self.alarms]
        alarms = [(start, max(end, start + 1)) for start, end in alarms]
        return compute_affiliation(merge_runs(sorted(faults), 0), merge_runs(alarms, 0), (0, self.facts.watched_ns))


def _are_inside(times: npt.NDArray[np.int64], ranges: Iterable[Range]) -> npt.NDArray[np.bool_]:
    """Return which samples end in a range."""
    inside = np.zeros(len(times), dtype=bool)
    for start, end in ranges:
        inside |= (times > start) & (times <= end)
    return inside


def _list_alarms(row: ResultRow) -> list[Range]:
    return [alarm for alarm in list_alarms(row) if alarm[0] >= row.truth.reference_end_ns]


def _is_inside(time_ns: int, ranges: Iterable[Range]) -> bool:
    return any(start <= time_ns < end for start, end in ranges)


def group_detector_runs(
    rows: Iterable[ResultRow], windows: Mapping[str, DetectionWindow], facts: Mapping[str, RecordingFacts]
) -> dict[str, list[DetectorRun]]:
    """Return the runs of each detector, one per recording and seed.

    `rows`: answers to tested windows.
    `windows`: episode id -> window.
    `facts`: recording -> its facts.
    """
    groups: defaultdict[tuple[str, str, int], list[ResultRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.truth.reference_end_ns):
        groups[row.baseline, windows[row.episode].recording, row.seed].append(row)
    runs: defaultdict[str, list[DetectorRun]] = defaultdict(list)
    for (baseline, recording, seed), run_rows in sorted(groups.items()):
        runs[baseline].append(DetectorRun(facts=facts[recording], seed=seed, rows=tuple(run_rows)))
    return dict(runs)
