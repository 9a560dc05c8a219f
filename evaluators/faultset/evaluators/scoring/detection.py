"""Detection metrics of alarms and of the scores of samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.alarms import GAP_S, Range, average_precision, list_alarms, true_alarms, vus_pr
from faultset.evaluators.scoring.intervals import Estimate, clustered_mean, clustered_ratio, event_rate, unknown
from faultset.evaluators.scoring.metrics import (
    BUDGETS_S,
    CLOSED_FORM,
    Aggregate,
    Metric,
    ScoredCase,
    fault_seen_s,
    list_clusters,
    median,
    once_per_case,
)
from faultset.evaluators.scoring.paired_tests import balanced_accuracy, matthews_correlation

BUFFER_S = 30
_HOUR_NS = 3600 * SECOND_NS
_declare = functools.partial(Metric, task="detection", headline=False)


@dataclass(frozen=True, kw_only=True)
class AlarmFacts:
    """A detector's alarms in one episode: means over seeds, except for delays, which are medians."""

    raised_alarm: float
    """Share of seeds with any alarm; a failed run counts as the wrong answer."""
    detected: float
    """Share of seeds with a true alarm; NaN if the onset of the fault is unknown."""
    alarms: float
    true_alarms: float
    alarms_before_onset: float
    delay_s: float
    """Seconds from the onset to the first true alarm; +inf for a miss, NaN without an onset."""
    delay_from_manifest_s: float


_FACTS = ("raised_alarm", "detected", "alarms", "true_alarms", "alarms_before_onset")


@once_per_case
def alarm_facts(case: ScoredCase) -> AlarmFacts:
    """Count the alarms of all seeds, with the thresholds of the case or the detector's own."""
    thresholds = case.thresholds or [None] * len(case.rows)
    by_seed = [_count_alarms(row, threshold) for row, threshold in zip(case.rows, thresholds, strict=True)]
    if len(by_seed) == 1:
        return by_seed[0]
    return AlarmFacts(
        **{name: float(np.mean([getattr(facts, name) for facts in by_seed])) for name in _FACTS},
        delay_s=sorted(facts.delay_s for facts in by_seed)[len(by_seed) // 2],
        delay_from_manifest_s=sorted(facts.delay_from_manifest_s for facts in by_seed)[len(by_seed) // 2],
    )


def _count_alarms(row: ResultRow, threshold: float | None) -> AlarmFacts:
    truth = row.truth
    answered = row.status == "ok"
    raised = list_alarms(row, threshold) if answered else []
    # a sample that ends with the view still belongs to the fault
    fault = None if truth.onset_ns is None else (truth.onset_ns, truth.view_end_ns + 1)
    correct_alarms = true_alarms([fault], raised) if fault else []
    missing_value = 0.0 if truth.faulty else 1.0
    return AlarmFacts(
        raised_alarm=float(bool(raised)) if answered else missing_value,
        detected=math.nan if truth.faulty and fault is None else float(bool(correct_alarms)),
        alarms=float(len(raised)),
        true_alarms=float(len(correct_alarms)),
        alarms_before_onset=float(sum(a < fault[0] for a, _ in raised) if fault else 0),
        delay_s=_measure_delay_s(correct_alarms, truth.onset_ns),
        delay_from_manifest_s=_measure_delay_s(correct_alarms, truth.manifest_ns),
    )


def _measure_delay_s(correct_alarms: Sequence[Range], start_ns: int | None) -> float:
    if start_ns is None:
        return math.nan
    if not correct_alarms:
        return math.inf
    # an alarm before clients suffer has a delay of zero, not a negative one
    return max(0.0, (correct_alarms[0][0] - start_ns) / SECOND_NS)


def is_answered(case: ScoredCase) -> bool:
    """Return whether every seed answered."""
    return all(row.status == "ok" for row in case.rows)


def watched_ns(truth: Truth) -> int:
    """Return the time after the reference, during which alarms count."""
    return truth.view_end_ns - truth.reference_end_ns


def _compute_correctness(case: ScoredCase) -> float:
    """Return the share of seeds with a true alarm if there is a fault, or without an alarm if there is none."""
    detected = alarm_facts(case).detected
    return _compute_classification(case) if not case.truth.faulty or math.isnan(detected) else detected


def _compute_classification(case: ScoredCase) -> float:
    """Return the share of seeds with any alarm if there is a fault, or without an alarm if there is none."""
    raised = alarm_facts(case).raised_alarm
    return raised if case.truth.faulty else 1.0 - raised


@once_per_case
def _average_areas(case: ScoredCase) -> tuple[float, float]:
    """Return AUC-PR and VUS-PR, which take most of the time of scoring."""
    onset_ns = case.truth.onset_ns
    if case.thresholds is not None or onset_ns is None:
        return math.nan, math.nan
    areas = [_compute_areas(row, onset_ns, case.truth.pauses) for row in case.rows]
    return float(np.mean([area for area, _ in areas])), float(np.mean([volume for _, volume in areas]))


def _compute_areas(row: ResultRow, onset_ns: int, pauses: Sequence[Range]) -> tuple[float, float]:
    if row.status == "ok" and "times_ns" not in row.answer:
        # an alarm computed elsewhere, without scores
        return math.nan, math.nan
    times = np.asarray(row.answer.get("times_ns", []), dtype=np.int64)
    if row.status != "ok" or len(times) == 0:
        # an answer without scores detects nothing at any threshold
        return 0.0, 0.0
    is_scored = np.ones(len(times), dtype=bool)
    for pause_start_ns, pause_end_ns in pauses:
        is_scored &= (times <= pause_start_ns) | (times > pause_end_ns)
    inside = (times > onset_ns)[is_scored]
    scores = np.asarray(row.answer["scores"], dtype=float)[is_scored]
    return average_precision(inside, scores), vus_pr(inside, scores, buffer_samples(times))


def buffer_samples(times: np.ndarray) -> int:
    """Return the number of samples in `BUFFER_S`, by the median step."""
    step_s = float(np.median(np.diff(times))) / SECOND_NS if len(times) > 1 else 1.0
    return round(BUFFER_S / max(step_s, 1e-9))


Combine = Callable[[Sequence[float], Sequence[Hashable], Sequence[float], Sequence[Hashable]], Estimate]


def _combine_halves(combine: Combine) -> Aggregate:
    """Return an aggregate that combines fault episodes and no-fault episodes."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        cases = [case for case in cases if not math.isnan(case.value(metric))]
        faulty, healthy = ([case for case in cases if case.truth.faulty == kind] for kind in (True, False))
        if not faulty or not healthy:
            return unknown(f"no {'no-fault' if faulty else 'fault'} episodes")
        faulty_values, healthy_values = ([case.value(metric) for case in half] for half in (faulty, healthy))
        estimate = combine(faulty_values, list_clusters(faulty), healthy_values, list_clusters(healthy))
        if _is_constant(cases) and len(set(faulty_values)) == len(set(healthy_values)) == 1:
            # different episodes would give the same number
            exact = "closed form: the same answer in every episode"
            return Estimate(value=estimate.value, n=len(cases)).with_interval(
                estimate.value, estimate.value, method=exact
            )
        return estimate

    return aggregate


def _is_constant(cases: Sequence[ScoredCase]) -> bool:
    """Return whether a control gives every sample of every episode the same score."""
    rows = [row for case in cases for row in case.rows]
    if any(row.status != "ok" or row.kind != "control" for row in rows):
        return False
    return len({score for row in rows for score in row.answer.get("scores", (None, math.nan))}) == 1


def _estimate_precision(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if not (case.truth.faulty and case.truth.onset_ns is None)]
    alarms = [alarm_facts(case).alarms for case in cases]
    true_counts = [alarm_facts(case).true_alarms for case in cases]
    if not sum(alarms):
        return unknown("no alarms", len(cases))
    estimate = clustered_ratio(true_counts, alarms, list_clusters(cases), [case.truth.faulty for case in cases])
    return replace(estimate, n=round(sum(alarms)), k=sum(true_counts))


def _estimate_hourly_rate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if is_answered(case)]
    hours = [watched_ns(case.truth) / _HOUR_NS for case in cases]
    return event_rate([alarm_facts(case).alarms for case in cases], hours, list_clusters(cases))


def _estimate_hourly_rate_before_onset(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if is_answered(case) and case.truth.onset_ns is not None]
    hours = [max(0, (case.truth.onset_ns or 0) - case.truth.reference_end_ns) / _HOUR_NS for case in cases]
    return event_rate([alarm_facts(case).alarms_before_onset for case in cases], hours, list_clusters(cases))


def _estimate_restricted_mean(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if case.truth.onset_ns is not None]
    windows = [fault_seen_s(case.truth) for case in cases]
    delays = [min(alarm_facts(case).delay_s, window) for case, window in zip(cases, windows, strict=True)]
    return clustered_mean(delays, list_clusters(cases), bounds=(0.0, max(windows, default=0.0)))


def _estimate_median_from_impact(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
    cases = [case for case in cases if case.truth.onset_ns is not None]
    if all(case.truth.manifest_ns is None for case in cases):
        return unknown("clients were affected in no episode", len(cases))
    return median(metric, cases)


def _declare_within(horizon_s: int) -> Metric:
    """Declare the share of faults with a true alarm within `horizon_s`; unknown if a view ends sooner."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        cases = [case for case in cases if case.truth.onset_ns is not None]
        shortest = min((fault_seen_s(case.truth) for case in cases), default=0.0)
        if shortest < horizon_s:
            return unknown(f"a view ends {shortest:.0f} s after the onset", len(cases))
        return clustered_mean([case.value(metric) for case in cases], list_clusters(cases))

    return _declare(
        name=f"detected_within_{horizon_s}s",
        title=f"detected in {horizon_s} s",
        unit="share",
        headline=True,
        brief=True,
        meaning=f"share of faults with a true alarm at most {horizon_s} s after the onset",
        of_case=lambda case: float(alarm_facts(case).delay_s <= horizon_s),
        aggregate=aggregate,
    )


def _constant_guess(value: float) -> Callable[[Metric, Sequence[ScoredCase]], Estimate]:
    """Return a function that gives the guessing score: the best score of any constant answer."""
    return lambda metric, cases: Estimate(value=value, method=CLOSED_FORM)


def _guess_volume(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    """Return the mean VUS-PR of a constant score, at the sample times of the answers or once per second."""
    values = []
    for case in cases:
        truth = case.truth
        if truth.onset_ns is None:
            continue
        times = np.asarray(case.rows[0].answer.get("times_ns", []), dtype=np.int64)
        if len(times) < 2:
            seconds = max(1, watched_ns(truth) // SECOND_NS)
            times = truth.reference_end_ns + np.arange(1, seconds + 1) * SECOND_NS
        values.append(vus_pr(times > truth.onset_ns, np.zeros(len(times)), buffer_samples(times)))
    return Estimate(value=float(np.mean(values)), n=len(values), method="constant score") if values else None


CORRECT = _declare(
    name="correct",
    title="correct",
    unit="share",
    headline=True,
    meaning="a true alarm if there is a fault, no alarm if there is none",
    episodes="all",
    of_case=_compute_correctness,
    balanced=True,
)
"""Correctness of a detector on one episode; timed balanced accuracy is its mean over both kinds of episodes."""
_declare_balanced = functools.partial(
    _declare,
    unit="share",
    episodes="all",
    aggregate=_combine_halves(balanced_accuracy),
    guess=_constant_guess(0.5),
    balanced=True,
)
TIMED_BALANCED_ACCURACY = _declare_balanced(
    name="timed_balanced_accuracy",
    title="timed balanced accuracy",
    headline=True,
    meaning="mean of the share of fault episodes with an alarm that begins after the onset and the share of no-fault "
    "episodes without an alarm; at most 0.5 for an answer that is the same in every episode",
    of_case=_compute_correctness,
)
BALANCED_ACCURACY = _declare_balanced(
    name="balanced_accuracy",
    title="balanced accuracy",
    headline=True,
    shown_second="if known",
    brief=True,
    meaning="the usual definition: mean of the share of fault episodes with any alarm, even before the onset, and the "
    "share of no-fault episodes without an alarm; 0.5 for an answer that is the same in every episode",
    of_case=_compute_classification,
)

DETECTION_METRICS = (
    TIMED_BALANCED_ACCURACY,
    BALANCED_ACCURACY,
    _declare(
        name="vus_pr",
        title="VUS-PR",
        unit="share",
        headline=True,
        shown_second="if known",
        brief=True,
        meaning="volume under the precision-recall surface of the scores, so without a threshold; step form of TSB-AD, "
        f"buffer {BUFFER_S} s; guessing is a constant score",
        of_case=lambda case: _average_areas(case)[1],
        guess=_guess_volume,
    ),
    _declare(
        name="event_recall",
        title="event recall",
        unit="share",
        headline=True,
        meaning=f"share of faults with an alarm that begins after the onset [gap={GAP_S}s,grace=0s]",
        of_case=lambda case: alarm_facts(case).detected,
    ),
    *(_declare_within(horizon_s) for horizon_s in BUDGETS_S),
    _declare(
        name="event_precision",
        title="event precision",
        unit="share",
        headline=True,
        meaning=f"share of the alarms of all episodes that begin in a fault [gap={GAP_S}s,grace=0s]",
        episodes="all",
        aggregate=_estimate_precision,
    ),
    _declare(
        name="false_alarms_per_hour",
        title="false alarms / h",
        unit="per hour",
        better="lower",
        headline=True,
        meaning="alarms per watched hour of no-fault episodes",
        brief=True,
        episodes="no fault",
        aggregate=_estimate_hourly_rate,
    ),
    _declare(
        name="ttd_median",
        title="median TTD",
        unit="s",
        better="lower",
        headline=True,
        meaning="median seconds from the onset to the first true alarm; a miss is infinite",
        brief=True,
        of_case=lambda case: alarm_facts(case).delay_s,
        aggregate=median,
    ),
    _declare(
        name="ttd_restricted_mean",
        title="mean TTD",
        unit="s",
        better="lower",
        meaning="mean seconds from the onset to the first true alarm; a miss counts as the whole window",
        brief=True,
        aggregate=_estimate_restricted_mean,
    ),
    _declare_balanced(
        name="timed_balanced_accuracy_answered",
        title="timed balanced accuracy answered",
        shown_second="if fewer episodes",
        brief=True,
        meaning="timed balanced accuracy over answered episodes only",
        of_case=lambda case: _compute_correctness(case) if is_answered(case) else math.nan,
    ),
    _declare(
        name="mcc",
        title="MCC",
        meaning="Matthews correlation of true alarms in fault episodes and alarms in no-fault episodes; "
        "at most 0 for an answer that is the same in every episode",
        episodes="all",
        of_case=_compute_correctness,
        aggregate=_combine_halves(matthews_correlation),
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
        aggregate=_estimate_hourly_rate_before_onset,
    ),
    _declare(
        name="ttd_median_from_manifest",
        title="median TTD from first impact",
        unit="s",
        better="lower",
        meaning="median TTD from the first second in which requests of clients are affected",
        of_case=lambda case: alarm_facts(case).delay_from_manifest_s,
        aggregate=_estimate_median_from_impact,
    ),
    _declare(
        name="ttd_seen_median",
        title="median TTD, shortest view",
        unit="s",
        better="lower",
        shown_second="if known",
        meaning="median seconds from the onset to the end of the shortest --evidence view such that the alarm is "
        "true in it and in all longer views; a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="methods were not run with less evidence; add --evidence",
    ),
    _declare(
        name="average_precision",
        title="AUC-PR",
        unit="share",
        meaning="average precision of the scores of samples; guessing is the share of samples in the fault",
        of_case=lambda case: _average_areas(case)[0],
        floor=lambda truth: fault_seen_s(truth) * SECOND_NS / watched_ns(truth),
    ),
)
NO_THRESHOLD = "the policy {policy} sets no threshold for this detector"
BY_POLICY = (
    "timed_balanced_accuracy",
    "balanced_accuracy",
    "event_recall",
    "event_precision",
    "false_alarms_per_hour",
    "ttd_median",
)
"""Metrics that are also computed with the thresholds of other policies."""
COMPARED = (
    TIMED_BALANCED_ACCURACY,
    _declare(
        name="detected",
        title="faults detected",
        unit="share",
        headline=True,
        meaning="share of faults with a true alarm",
        of_case=_compute_correctness,
    ),
    _declare(
        name="no_false_alarm",
        title="no false alarm",
        unit="share",
        headline=True,
        meaning="share of no-fault episodes without any alarm",
        episodes="no fault",
        of_case=_compute_correctness,
    ),
)
"""Metrics of comparisons."""


def build_policy_metrics(policy: str) -> tuple[Metric, ...]:
    """Return the metrics of a threshold policy, named like `event_recall[train-quantile(0.995)]`."""
    return tuple(_apply_policy(metric, policy) for metric in DETECTION_METRICS if metric.name in BY_POLICY)


def _apply_policy(metric: Metric, policy: str) -> Metric:
    def aggregate(_: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        if not all(policy in case.by_policy for case in cases):
            return unknown(NO_THRESHOLD.format(policy=policy))
        return metric.estimate([case.by_policy[policy] for case in cases])

    return replace(metric.with_policy(policy), episodes="all", aggregate=aggregate, guess=lambda _, cases: None)
