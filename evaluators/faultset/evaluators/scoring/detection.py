"""Detection metrics: from flags to alarms, and from alarms to the numbers that tables show."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.alarms import (
    GAP_S,
    Range,
    alarms_of,
    average_precision,
    true_alarms,
    vus_pr,
)
from faultset.evaluators.scoring.metrics import CLOSED_FORM, Metric, ScoredCase, clusters_of, median, once_per_case
from faultset.evaluators.statistics.comparison import balanced_accuracy, matthews_correlation
from faultset.evaluators.statistics.intervals import Estimate, clustered_mean, clustered_ratio, hourly_rate, unknown

BUFFER_S = 30
HORIZONS_S = (30, 60, 300)
_HOUR_NS = 3600 * SECOND_NS
_declare = functools.partial(Metric, task="detection", headline=False)


@dataclass(frozen=True, kw_only=True)
class AlarmFacts:
    """What a detector's alarms come to in one episode; means over seeds, of the delays the median."""

    raised_alarm: float
    """Share of seeds that raised any alarm; a failed run counts as the wrong answer."""
    detected: float
    """Share of seeds with a true alarm; NaN where a fault's onset is unknown."""
    alarms: float
    true_alarms: float
    alarms_before_onset: float
    delay_s: float
    """Seconds from onset to the first true alarm; +inf for a miss, NaN without an onset."""
    delay_from_manifest_s: float


_FACTS = ("raised_alarm", "detected", "alarms", "true_alarms", "alarms_before_onset")


@once_per_case
def alarm_facts(case: ScoredCase) -> AlarmFacts:
    """Count the alarms of all seeds, by the detector's own thresholds or by those of the case."""
    thresholds = case.thresholds or [None] * len(case.rows)
    each = [_alarm_facts(row, threshold) for row, threshold in zip(case.rows, thresholds, strict=True)]
    if len(each) == 1:
        return each[0]
    return AlarmFacts(
        **{name: float(np.mean([getattr(facts, name) for facts in each])) for name in _FACTS},
        delay_s=sorted(facts.delay_s for facts in each)[len(each) // 2],
        delay_from_manifest_s=sorted(facts.delay_from_manifest_s for facts in each)[len(each) // 2],
    )


def _alarm_facts(row: ResultRow, threshold: float | None) -> AlarmFacts:
    truth = row.truth
    answered = row.status == "ok"
    raised = alarms_of(row, threshold) if answered else []
    # a sample completed at the end of the view still belongs to the fault
    fault = None if truth.onset_ns is None else (truth.onset_ns, truth.view_end_ns + 1)
    true = true_alarms([fault], raised) if fault else []
    wrong = 0.0 if truth.faulty else 1.0
    return AlarmFacts(
        raised_alarm=float(bool(raised)) if answered else wrong,
        detected=math.nan if truth.faulty and fault is None else float(bool(true)),
        alarms=float(len(raised)),
        true_alarms=float(len(true)),
        alarms_before_onset=float(sum(a < fault[0] for a, _ in raised) if fault else 0),
        delay_s=_delay(true, truth.onset_ns),
        delay_from_manifest_s=_delay(true, truth.manifest_ns),
    )


def _delay(true: Sequence[Range], since_ns: int | None) -> float:
    if since_ns is None:
        return math.nan
    if not true:
        return math.inf
    # clients may suffer later than a good detector raises its alarm: that is a delay of zero, not a negative one
    return max(0.0, (true[0][0] - since_ns) / SECOND_NS)


def is_answered(case: ScoredCase) -> bool:
    """Return whether every seed gave an answer."""
    return all(row.status == "ok" for row in case.rows)


def watched_ns(truth: Truth) -> int:
    """Return the time after the reference in which an alarm could be raised."""
    return truth.view_end_ns - truth.reference_end_ns


def window_s(truth: Truth) -> float:
    """Return the length of the fault that was seen; NaN without an onset."""
    return math.nan if truth.onset_ns is None else (truth.view_end_ns - truth.onset_ns) / SECOND_NS


def _is_correct(case: ScoredCase) -> float:
    """Return the share of seeds that were right: a true alarm in a fault, no alarm without one."""
    facts = alarm_facts(case)
    if not case.truth.faulty:
        return 1.0 - facts.raised_alarm
    return facts.raised_alarm if math.isnan(facts.detected) else facts.detected


@once_per_case
def _areas(case: ScoredCase) -> tuple[float, float]:
    """Return AUC-PR and VUS-PR; they take most of the time of scoring, and are computed where they are shown."""
    onset_ns = case.truth.onset_ns
    if case.thresholds is not None or onset_ns is None:
        return math.nan, math.nan
    areas = [_areas_of(row, onset_ns, case.truth.pauses) for row in case.rows]
    return float(np.mean([area for area, _ in areas])), float(np.mean([volume for _, volume in areas]))


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
    return average_precision(inside, scores), vus_pr(inside, scores, _buffer_samples(times))


def _buffer_samples(times: np.ndarray) -> int:
    """Return the number of samples of the volume's buffer, by the median step of the samples."""
    step_s = float(np.median(np.diff(times))) / SECOND_NS if len(times) > 1 else 1.0
    return round(BUFFER_S / max(step_s, 1e-9))


def _halves(cases: Sequence[ScoredCase]) -> tuple[list[ScoredCase], list[ScoredCase]]:
    return [case for case in cases if case.truth.faulty], [case for case in cases if not case.truth.faulty]


def _balanced(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    return _over_halves(cases)[0]


def _matthews(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    return _over_halves(cases)[1]


def _balanced_answered(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    return _over_halves([case for case in cases if is_answered(case)])[0]


def _over_halves(cases: Sequence[ScoredCase]) -> tuple[Estimate, Estimate]:
    """Return balanced accuracy and Matthews correlation."""
    faulty, healthy = _halves(cases)
    if not faulty or not healthy:
        missing = unknown(f"no {'no-fault' if faulty else 'fault'} episodes")
        return missing, missing
    right, quiet = ([case.value(CORRECT) for case in half] for half in (faulty, healthy))
    halves = right, clusters_of(faulty), quiet, clusters_of(healthy)
    if _is_constant(cases) and len(set(right)) == len(set(quiet)) == 1:
        # it answers like that in any episode: there is nothing that other episodes could change
        values = (right[0] + quiet[0]) / 2, matthews_correlation(*halves).value
        exact = "closed form: the same answer in every episode"
        balanced, mcc = (
            Estimate(value=value, n=len(cases)).with_interval(value, value, method=exact) for value in values
        )
        return balanced, mcc
    return balanced_accuracy(*halves), matthews_correlation(*halves)


def _is_constant(cases: Sequence[ScoredCase]) -> bool:
    """Return whether a control gave every sample of every episode the same score."""
    rows = [row for case in cases for row in case.rows]
    if any(row.status != "ok" or row.kind != "control" for row in rows):
        return False
    return len({score for row in rows for score in row.answer.get("scores", (None, math.nan))}) == 1


def _precision(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if not (case.truth.faulty and case.truth.onset_ns is None)]
    alarms = [alarm_facts(case).alarms for case in cases]
    true = [alarm_facts(case).true_alarms for case in cases]
    if not sum(alarms):
        return unknown("no alarms", len(cases))
    estimate = clustered_ratio(true, alarms, clusters_of(cases), [case.truth.faulty for case in cases])
    return replace(estimate, n=round(sum(alarms)), k=sum(true))


def _hourly(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if is_answered(case)]
    hours = [watched_ns(case.truth) / _HOUR_NS for case in cases]
    return hourly_rate([alarm_facts(case).alarms for case in cases], hours, clusters_of(cases))


def _hourly_before_onset(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if is_answered(case) and case.truth.onset_ns is not None]
    hours = [max(0, (case.truth.onset_ns or 0) - case.truth.reference_end_ns) / _HOUR_NS for case in cases]
    return hourly_rate([alarm_facts(case).alarms_before_onset for case in cases], hours, clusters_of(cases))


def _restricted_mean(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if case.truth.onset_ns is not None]
    windows = [window_s(case.truth) for case in cases]
    delays = [min(alarm_facts(case).delay_s, window) for case, window in zip(cases, windows, strict=True)]
    return clustered_mean(delays, clusters_of(cases), bounds=(0.0, max(windows, default=0.0)))


def _median_from_impact(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if case.truth.onset_ns is not None]
    if all(case.truth.manifest_ns is None for case in cases):
        return unknown("no episode in which clients suffered", len(cases))
    return median(metric, cases)


def _within(horizon_s: int) -> Metric:
    """Declare the share of faults with a true alarm in time, where all are seen for so long."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        cases = [case for case in cases if case.truth.onset_ns is not None]
        shortest = min((window_s(case.truth) for case in cases), default=0.0)
        if shortest < horizon_s:
            return unknown(f"faults are only seen for {shortest:.0f} s", len(cases))
        return clustered_mean([case.value(metric) for case in cases], clusters_of(cases))

    return _declare(
        name=f"detected_within_{horizon_s}s",
        title=f"detected in {horizon_s} s",
        unit="share",
        meaning=f"share of faults with a true alarm at most {horizon_s} s after the onset",
        of_case=lambda case: float(alarm_facts(case).delay_s <= horizon_s),
        aggregate=aggregate,
    )


def _constant_guess(value: float) -> Callable[[Metric, Sequence[ScoredCase]], Estimate]:
    """Return the most that an answer can score which is the same in every episode."""
    return lambda metric, cases: Estimate(value=value, method=CLOSED_FORM)


def _share_in_fault(truth: Truth) -> float:
    return window_s(truth) * SECOND_NS / watched_ns(truth)


def _guessed_volume(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the mean volume of a constant score on the samples of an answer; on seconds if there is no answer."""
    values = []
    for case in cases:
        truth = case.truth
        if truth.onset_ns is None:
            continue
        times = np.asarray(case.rows[0].answer.get("times_ns", []), dtype=np.int64)
        if len(times) < 2:
            seconds = max(1, watched_ns(truth) // SECOND_NS)
            times = truth.reference_end_ns + np.arange(1, seconds + 1) * SECOND_NS
        values.append(vus_pr(times > truth.onset_ns, np.zeros(len(times)), _buffer_samples(times)))
    return Estimate(value=float(np.mean(values)), n=len(values), method="constant score") if values else None


CORRECT = _declare(
    name="correct",
    title="correct",
    unit="share",
    headline=True,
    meaning="a true alarm in a fault, no alarm without one",
    episodes="all",
    of_case=_is_correct,
    balanced=True,
)
"""How right a detector is about one episode; balanced accuracy is the mean over both kinds of episodes."""
BALANCED_ACCURACY = _declare(
    name="balanced_accuracy",
    title="balanced accuracy",
    unit="share",
    headline=True,
    meaning="mean of the share of fault episodes with a true alarm and of no-fault episodes without any; "
    "at most 0.5 for an answer that is the same in every episode",
    episodes="all",
    of_case=_is_correct,
    aggregate=_balanced,
    guess=_constant_guess(0.5),
    balanced=True,
)

DETECTION_METRICS = (
    BALANCED_ACCURACY,
    _declare(
        name="event_recall",
        title="event recall",
        unit="share",
        headline=True,
        meaning=f"share of faults with an alarm that began after the onset [gap={GAP_S}s,grace=0s]",
        of_case=lambda case: alarm_facts(case).detected,
    ),
    _declare(
        name="event_precision",
        title="event precision",
        unit="share",
        headline=True,
        meaning=f"share of alarms, over fault and no-fault episodes, that began in a fault [gap={GAP_S}s,grace=0s]",
        episodes="all",
        aggregate=_precision,
    ),
    _declare(
        name="false_alarms_per_hour",
        title="false alarms / h",
        unit="per hour",
        better="lower",
        headline=True,
        meaning="alarms per watched hour of no-fault episodes",
        episodes="no fault",
        aggregate=_hourly,
    ),
    _declare(
        name="ttd_median",
        title="median TTD",
        unit="s",
        better="lower",
        headline=True,
        meaning="median seconds from the onset to the first true alarm, a miss is infinite",
        of_case=lambda case: alarm_facts(case).delay_s,
        aggregate=median,
    ),
    _declare(
        name="ttd_restricted_mean",
        title="mean TTD",
        unit="s",
        better="lower",
        headline=True,
        meaning="mean seconds to the first true alarm, a miss counts as the whole window",
        aggregate=_restricted_mean,
    ),
    _declare(
        name="balanced_accuracy_answered",
        title="balanced accuracy answered",
        unit="share",
        beside_first="if it differs",
        meaning="balanced accuracy over answered episodes alone; what a method leaves out does not count against it",
        episodes="all",
        aggregate=_balanced_answered,
    ),
    _declare(
        name="mcc",
        title="MCC",
        meaning="Matthews correlation of true alarms in fault episodes and alarms in no-fault episodes; "
        "at most 0 for an answer that is the same in every episode",
        episodes="all",
        aggregate=_matthews,
        guess=_constant_guess(0.0),
    ),
    _declare(
        name="recall",
        title="alarm rate in faults",
        unit="share",
        meaning="share of fault episodes with any alarm at all",
        of_case=lambda case: alarm_facts(case).raised_alarm,
    ),
    _declare(
        name="false_positive_rate",
        title="false positive rate",
        unit="share",
        better="lower",
        meaning="share of no-fault episodes with any alarm",
        episodes="no fault",
        of_case=lambda case: alarm_facts(case).raised_alarm,
    ),
    _declare(
        name="false_alarms_per_hour_before_onset",
        title="false alarms / h before onset",
        unit="per hour",
        better="lower",
        meaning="alarms per watched hour of fault episodes before their onset",
        aggregate=_hourly_before_onset,
    ),
    _declare(
        name="ttd_median_from_manifest",
        title="median TTD from first impact",
        unit="s",
        better="lower",
        meaning="as median TTD, but from the first second in which the clients' requests suffer",
        of_case=lambda case: alarm_facts(case).delay_from_manifest_s,
        aggregate=_median_from_impact,
    ),
    _declare(
        name="ttd_seen_median",
        title="median TTD, no more seen",
        unit="s",
        better="lower",
        beside_first="if known",
        meaning="median seconds from the onset to the end of the shortest view from which on a true alarm is raised, "
        "over the budgets of --evidence: as median TTD where nothing later can be read; a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="no budgets of evidence were tried",
    ),
    *(_within(horizon_s) for horizon_s in HORIZONS_S),
    _declare(
        name="average_precision",
        title="AUC-PR",
        unit="share",
        meaning="average precision of the score over samples; its floor is the share of samples in the fault",
        of_case=lambda case: _areas(case)[0],
        floor=_share_in_fault,
    ),
    _declare(
        name="vus_pr",
        title=f"VUS-PR [step, {BUFFER_S} s]",
        unit="share",
        meaning=f"volume under the precision-recall surface in the step form of TSB-AD, buffer {BUFFER_S} s; "
        "its floor is the value of a constant score",
        of_case=lambda case: _areas(case)[1],
        guess=_guessed_volume,
    ),
)
BY_POLICY = ("balanced_accuracy", "event_recall", "event_precision", "false_alarms_per_hour", "ttd_median")
"""Metrics that threshold policies other than the rule of a table get columns for."""
COMPARED = (
    BALANCED_ACCURACY,
    _declare(
        name="detected",
        title="faults detected",
        unit="share",
        headline=True,
        meaning="share of faults with a true alarm",
        of_case=_is_correct,
    ),
    _declare(
        name="no_false_alarm",
        title="no false alarm",
        unit="share",
        headline=True,
        meaning="share of no-fault episodes without any alarm",
        episodes="no fault",
        of_case=_is_correct,
    ),
)
"""Metrics of comparisons, which need a value for each episode."""


def policy_metrics(policy: str) -> tuple[Metric, ...]:
    """Return the columns of a threshold policy, named like `event_recall[train-quantile(0.995)]`."""
    return tuple(_by_policy(metric, policy) for metric in DETECTION_METRICS if metric.name in BY_POLICY)


def _by_policy(metric: Metric, policy: str) -> Metric:
    def aggregate(_: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        if not all(policy in case.by_policy for case in cases):
            return unknown(f"the policy {policy} sets no threshold for it")
        return metric.estimate([case.by_policy[policy] for case in cases])

    return replace(
        metric,
        name=f"{metric.name}[{policy}]",
        title=f"{metric.title}, {policy}",
        meaning=f"{metric.meaning}; thresholds set by the policy {policy}",
        headline=False,
        episodes="all",
        aggregate=aggregate,
        guess=lambda _, cases: None,
    )
