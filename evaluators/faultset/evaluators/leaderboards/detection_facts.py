"""What detectors said about episodes: from flags to alarms, and from alarms to facts about one episode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.results.rows import ResultRow, Truth
from faultset.evaluators.scoring.alarms import Range, events, join, true_alarms
from faultset.evaluators.scoring.points import average_precision, vus_pr

GAP_S = 30
BUFFER_S = 30
_S = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What one detector said about one episode; means over seeds where it has several."""

    truth: Truth
    answered: bool
    yes: float
    """Share of seeds that alarmed at all; a failed run is the wrong answer."""
    found: float
    """Share of seeds with a true alarm."""
    alarms: float
    true_alarms: float
    alarms_before_onset: float
    delay_s: float
    """Seconds from onset to the first true alarm; +inf for a miss; the median over seeds."""
    delay_from_manifest_s: float
    average_precision: float
    vus_pr: float

    @property
    def watched_ns(self) -> int:
        """Time after the reference in which an alarm could be raised."""
        return self.truth.view_end_ns - self.truth.reference_end_ns

    @property
    def window_s(self) -> float:
        """Length of the fault that was seen."""
        if self.truth.onset_ns is None:
            return math.nan
        return (self.truth.view_end_ns - self.truth.onset_ns) / _S


def alarms_of(row: ResultRow, threshold: float | None = None) -> list[Range]:
    """All alarms of a row: runs of as many flags as its detector needs, joined across short gaps.

    The onset of an alarm is when it was raised, so that a run of three flags of which two are needed begins at the
    second. With a threshold, scores above it are the flags.
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
            return [(row.alarm_ns, row.alarm_ns + 1)]
    step = int(np.median(np.diff(times))) if len(times) > 1 else 1
    ends = np.append(times[1:], times[-1:] + step)
    runs = [(int(times[a + needed - 1]), int(ends[b - 1])) for a, b in events(flags) if b - a >= needed]
    return join(runs, GAP_S * _S)


def heard(rows: Sequence[ResultRow], thresholds: Sequence[float] | None = None) -> Heard:
    """Put the rows of one detector on one episode, one for each seed, together.

    With thresholds, one for each row, alarms follow from them and scores without a threshold are left out.
    """
    each = [_one(row, threshold) for row, threshold in zip(rows, thresholds or [None] * len(rows), strict=True)]
    first = each[0]
    if len(each) == 1:
        return first
    mean = lambda name: float(np.mean([getattr(one, name) for one in each]))  # noqa: E731
    middle = lambda name: sorted(getattr(one, name) for one in each)[len(each) // 2]  # noqa: E731
    return Heard(
        truth=first.truth,
        answered=all(one.answered for one in each),
        delay_s=middle("delay_s"),
        delay_from_manifest_s=middle("delay_from_manifest_s"),
        **{
            name: mean(name)
            for name in (
                "yes",
                "found",
                "alarms",
                "true_alarms",
                "alarms_before_onset",
                "average_precision",
                "vus_pr",
            )
        },
    )


def _one(row: ResultRow, threshold: float | None) -> Heard:
    truth = row.truth
    answered = row.status == "ok"
    raised = alarms_of(row, threshold) if answered else []
    fault = _fault_range(truth)
    true = true_alarms([fault], raised) if fault else []
    if threshold is not None:
        area = volume = math.nan
    else:
        area, volume = _threshold_free(row, fault) if answered else (_worst(truth), _worst(truth))
    unknown_onset = truth.faulty and fault is None
    wrong = 0.0 if truth.faulty else 1.0
    return Heard(
        truth=truth,
        answered=answered,
        yes=float(bool(raised)) if answered else wrong,
        found=math.nan if unknown_onset else float(bool(true)),
        alarms=float(len(raised)),
        true_alarms=float(len(true)),
        alarms_before_onset=float(sum(a < fault[0] for a, _ in raised)) if fault else 0.0,
        delay_s=_delay(true, truth.onset_ns),
        delay_from_manifest_s=_delay(true, truth.manifest_ns),
        average_precision=area,
        vus_pr=volume,
    )


def _fault_range(truth: Truth) -> Range | None:
    """From the onset to the end of the view, which a sample completed at that instant still belongs to."""
    return None if truth.onset_ns is None else (truth.onset_ns, truth.view_end_ns + 1)


def _delay(true: Sequence[Range], since_ns: int | None) -> float:
    if since_ns is None:
        return math.nan
    if not true:
        return math.inf
    # clients may suffer later than a good detector speaks: that is a delay of zero, not a negative one
    return max(0.0, (true[0][0] - since_ns) / _S)


def _worst(truth: Truth) -> float:
    return 0.0 if truth.onset_ns is not None else math.nan


def _threshold_free(row: ResultRow, fault: Range | None) -> tuple[float, float]:
    times = np.asarray(row.answer.get("times_ns", []), dtype=np.int64)
    if fault is None:
        return math.nan, math.nan
    if len(times) == 0:
        # no sample was ranked: nothing was found at any threshold
        return 0.0, 0.0
    inside = times > fault[0]
    scores = np.asarray(row.answer["scores"], dtype=float)
    step_s = float(np.median(np.diff(times))) / _S if len(times) > 1 else 1.0
    return average_precision(inside, scores), vus_pr(inside, scores, round(BUFFER_S / max(step_s, 1e-9)))
