"""What a detector answered on one episode: from flags to alarms, and from alarms to the facts that are scored."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.alarms import Range, events, join, outside, true_alarms
from faultset.evaluators.scoring.points import average_precision, vus_pr

GAP_S = 30
BUFFER_S = 30


@dataclass(frozen=True, kw_only=True)
class DetectionFacts:
    """What one detector answered on one episode; means over seeds where it has several.

    The areas under curves are computed when they are first read: they take most of the time of scoring, and reports
    and comparisons do not need them.
    """

    truth: Truth
    rows: tuple[ResultRow, ...] = field(repr=False)
    """One for each seed."""
    by_own_threshold: bool
    """Whether alarms follow from the detector's own threshold; scores have no areas otherwise."""
    answered: bool
    raised_alarm: float
    """Share of seeds that raised any alarm; a failed run counts as the wrong answer."""
    detected: float
    """Share of seeds with a true alarm; NaN where a fault's onset is unknown."""
    alarms: float
    true_alarms: float
    alarms_before_onset: float
    delay_s: float
    """Seconds from onset to the first true alarm; +inf for a miss, NaN without an onset; the median over seeds."""
    delay_from_manifest_s: float

    @property
    def watched_ns(self) -> int:
        """Time after the reference in which an alarm could be raised."""
        return self.truth.view_end_ns - self.truth.reference_end_ns

    @property
    def window_s(self) -> float:
        """Length of the fault that was seen; NaN without an onset."""
        if self.truth.onset_ns is None:
            return math.nan
        return (self.truth.view_end_ns - self.truth.onset_ns) / SECOND_NS

    @property
    def correct(self) -> float:
        """Share of seeds that were right: a true alarm in a fault, no alarm without one."""
        if not self.truth.faulty:
            return 1.0 - self.raised_alarm
        return self.raised_alarm if math.isnan(self.detected) else self.detected

    @property
    def average_precision(self) -> float:
        """Area under the precision-recall curve over samples."""
        return self._areas[0]

    @property
    def vus_pr(self) -> float:
        """Volume under the precision-recall surface over samples."""
        return self._areas[1]

    @functools.cached_property
    def _areas(self) -> tuple[float, float]:
        if not self.by_own_threshold or self.truth.onset_ns is None:
            return math.nan, math.nan
        areas = [_areas_of(row, self.truth.onset_ns, self.truth.pauses) for row in self.rows]
        return float(np.mean([area for area, _ in areas])), float(np.mean([volume for _, volume in areas]))


def alarms_of(row: ResultRow, threshold: float | None = None) -> list[Range]:
    """All alarms of a row: runs of as many flags as its detector needs, joined across short gaps.

    The onset of an alarm is when it was raised, so that a run of three flags of which two are needed begins at the
    second. With a threshold, scores above it are the flags. A run that begins while an intermittent fault pauses counts
    from when the fault is back, if it lasts so long.
    """
    answer = row.answer
    if row.alarm_ns is None and threshold is None:
        return []
    times = np.asarray(answer.get("times_ns", []), dtype=np.int64)
    needed = answer.get("consecutive")
    if threshold is not None:
        flags = np.asarray(answer.get("scores", []), dtype=float) > threshold
        needed = needed or 1
    else:
        flags = np.frombuffer(answer.get("flags", "").encode(), dtype=np.uint8) == ord("1")
        if needed is None or len(times) == 0:
            assert row.alarm_ns is not None
            return outside([(row.alarm_ns, row.alarm_ns + 1)], row.truth.pauses)
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    ends = np.append(times[1:], times[-1:] + step)
    runs = [(int(times[a + needed - 1]), int(ends[b - 1])) for a, b in events(flags) if b - a >= needed]
    return join(outside(runs, row.truth.pauses), GAP_S * SECOND_NS)


def detection_facts(rows: Sequence[ResultRow], thresholds: Sequence[float] | None = None) -> DetectionFacts:
    """Put the rows of one detector on one episode, one for each seed, together.

    With thresholds, one for each row, alarms follow from them.
    """
    truth = rows[0].truth
    each = [_alarm_facts(row, threshold) for row, threshold in zip(rows, thresholds or [None] * len(rows), strict=True)]

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in each]))

    def middle(name: str) -> float:
        return sorted(getattr(one, name) for one in each)[len(each) // 2]

    return DetectionFacts(
        truth=truth,
        rows=tuple(rows),
        by_own_threshold=thresholds is None,
        answered=all(row.status == "ok" for row in rows),
        raised_alarm=mean("raised_alarm"),
        detected=mean("detected"),
        alarms=mean("alarms"),
        true_alarms=mean("true_alarms"),
        alarms_before_onset=mean("alarms_before_onset"),
        delay_s=middle("delay_s"),
        delay_from_manifest_s=middle("delay_from_manifest_s"),
    )


@dataclass(frozen=True, kw_only=True)
class _AlarmFacts:
    """The facts of one row."""

    raised_alarm: float
    detected: float
    alarms: int
    true_alarms: int
    alarms_before_onset: int
    delay_s: float
    delay_from_manifest_s: float


def _alarm_facts(row: ResultRow, threshold: float | None) -> _AlarmFacts:
    truth = row.truth
    answered = row.status == "ok"
    raised = alarms_of(row, threshold) if answered else []
    fault = _fault_range(truth)
    true = true_alarms([fault], raised) if fault else []
    wrong = 0.0 if truth.faulty else 1.0
    return _AlarmFacts(
        raised_alarm=float(bool(raised)) if answered else wrong,
        detected=math.nan if truth.faulty and fault is None else float(bool(true)),
        alarms=len(raised),
        true_alarms=len(true),
        alarms_before_onset=sum(a < fault[0] for a, _ in raised) if fault else 0,
        delay_s=_delay(true, truth.onset_ns),
        delay_from_manifest_s=_delay(true, truth.manifest_ns),
    )


def _fault_range(truth: Truth) -> Range | None:
    """From the onset to the end of the view, which a sample completed at that instant still belongs to."""
    return None if truth.onset_ns is None else (truth.onset_ns, truth.view_end_ns + 1)


def _delay(true: Sequence[Range], since_ns: int | None) -> float:
    if since_ns is None:
        return math.nan
    if not true:
        return math.inf
    # clients may suffer later than a good detector raises its alarm: that is a delay of zero, not a negative one
    return max(0.0, (true[0][0] - since_ns) / SECOND_NS)


def _areas_of(row: ResultRow, onset_ns: int, pauses: Sequence[Range]) -> tuple[float, float]:
    if row.status == "ok" and "times_ns" not in row.answer:
        # an alarm that was raised elsewhere, whose scores nobody knows
        return math.nan, math.nan
    times = np.asarray(row.answer.get("times_ns", []), dtype=np.int64)
    if row.status != "ok" or len(times) == 0:
        # no sample was ranked: nothing was detected at any threshold
        return 0.0, 0.0
    judged = np.ones(len(times), dtype=bool)
    for since_ns, until_ns in pauses:
        judged &= (times <= since_ns) | (times > until_ns)
    inside = (times > onset_ns)[judged]
    scores = np.asarray(row.answer["scores"], dtype=float)[judged]
    return average_precision(inside, scores), vus_pr(inside, scores, buffer_samples(times))


def buffer_samples(times: np.ndarray) -> int:
    """Number of samples that the buffer of the volume has, by the median step of the samples."""
    step_s = float(np.median(np.diff(times))) / SECOND_NS if len(times) > 1 else 1.0
    return round(BUFFER_S / max(step_s, 1e-9))
