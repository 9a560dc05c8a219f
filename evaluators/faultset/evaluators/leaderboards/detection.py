"""Detection metrics: the numbers that follow from what detectors answered."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.detection_facts import BUFFER_S, GAP_S, DetectionFacts, buffer_samples
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.points import vus_pr
from faultset.evaluators.statistics.clusters import clustered_mean, clustered_median, clustered_ratio
from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.halves import balanced_accuracy, matthews_correlation
from faultset.evaluators.statistics.median_times import median_time
from faultset.evaluators.statistics.rates import hourly_rate

HORIZONS_S = (30, 60, 300)
_HOUR_NS = 3600 * SECOND_NS

DETECTION_METRICS = (
    Metric(
        name="balanced_accuracy",
        title="balanced accuracy",
        unit="share",
        meaning="mean of the share of fault episodes with a true alarm and of no-fault episodes without any; "
        "at most 0.5 for an answer that is the same in every episode",
    ),
    Metric(
        name="event_recall",
        title="event recall",
        unit="share",
        meaning=f"share of faults with an alarm that began after the onset [gap={GAP_S}s,grace=0s]",
    ),
    Metric(
        name="event_precision",
        title="event precision",
        unit="share",
        meaning=f"share of alarms, over fault and no-fault episodes, that began in a fault [gap={GAP_S}s,grace=0s]",
    ),
    Metric(
        name="false_alarms_per_hour",
        title="false alarms / h",
        unit="per hour",
        better="lower",
        meaning="alarms per watched hour of no-fault episodes",
    ),
    Metric(
        name="ttd_median",
        title="median TTD",
        unit="s",
        better="lower",
        meaning="median seconds from the onset to the first true alarm, a miss is infinite",
    ),
    Metric(
        name="ttd_restricted_mean",
        title="mean TTD",
        unit="s",
        better="lower",
        meaning="mean seconds to the first true alarm, a miss counts as the whole window",
    ),
    Metric(
        name="balanced_accuracy_answered",
        title="balanced accuracy answered",
        unit="share",
        meaning="balanced accuracy over answered episodes alone; what a method leaves out does not count against it",
    ),
    Metric(
        name="mcc",
        title="MCC",
        meaning="Matthews correlation of true alarms in fault episodes and alarms in no-fault episodes; "
        "at most 0 for an answer that is the same in every episode",
    ),
    Metric(
        name="recall",
        title="alarm rate in faults",
        unit="share",
        meaning="share of fault episodes with any alarm at all",
    ),
    Metric(
        name="false_positive_rate",
        title="false positive rate",
        unit="share",
        better="lower",
        meaning="share of no-fault episodes with any alarm",
    ),
    Metric(
        name="false_alarms_per_hour_before_onset",
        title="false alarms / h before onset",
        unit="per hour",
        better="lower",
        meaning="alarms per watched hour of fault episodes before their onset",
    ),
    Metric(
        name="ttd_median_from_manifest",
        title="median TTD from first impact",
        unit="s",
        better="lower",
        meaning="as median TTD, but from the first second in which the clients' requests suffer",
    ),
    Metric(
        name="ttd_seen_median",
        title="median TTD, no more seen",
        unit="s",
        better="lower",
        meaning="median seconds from the onset to the end of the shortest view from which on a true alarm is raised, "
        "over the budgets of --evidence: as median TTD where nothing later can be read; a miss is infinite",
    ),
    *(
        Metric(
            name=f"detected_within_{horizon}s",
            title=f"detected in {horizon} s",
            unit="share",
            meaning=f"share of faults with a true alarm at most {horizon} s after the onset",
        )
        for horizon in HORIZONS_S
    ),
    Metric(
        name="average_precision",
        title="AUC-PR",
        unit="share",
        meaning="average precision of the score over samples; its floor is the share of samples in the fault",
    ),
    Metric(
        name="vus_pr",
        title=f"VUS-PR [step, {BUFFER_S} s]",
        unit="share",
        meaning=f"volume under the precision-recall surface in the step form of TSB-AD, buffer {BUFFER_S} s; "
        "its floor is the value of a constant score",
    ),
)
TABLE_COLUMNS = DETECTION_METRICS[:6]
BY_POLICY = ("balanced_accuracy", "event_recall", "event_precision", "false_alarms_per_hour", "ttd_median")
"""Metrics that threshold policies other than `reference` get columns for."""


def policy_metrics(policy: str) -> tuple[Metric, ...]:
    """Columns of a threshold policy, named like `event_recall[train-quantile(0.995)]`."""
    own = {metric.name: metric for metric in DETECTION_METRICS}
    return tuple(
        replace(
            own[name],
            name=f"{name}[{policy}]",
            title=f"{own[name].title}, {policy}",
            meaning=f"{own[name].meaning}; thresholds set by the policy {policy}",
        )
        for name in BY_POLICY
    )


def policy_estimates(
    policy: str, faulty: Sequence[DetectionFacts], healthy: Sequence[DetectionFacts]
) -> dict[str, Estimate]:
    """Estimates for the columns of a threshold policy."""
    found = detection_estimates(faulty, healthy)
    return {f"{name}[{policy}]": found[name] for name in BY_POLICY}


def detection_estimates(
    faulty: Sequence[DetectionFacts], healthy: Sequence[DetectionFacts], times: Mapping[str, float] | None = None
) -> dict[str, Estimate]:
    """Every detection metric of one detector on some fault episodes and the no-fault episodes beside them.

    Parameters
    ----------
    times
        Seconds after the onset up to which each episode had to be seen, where that was tried.
    """
    all_faulty = faulty
    faulty = [one for one in all_faulty if one.truth.onset_ns is not None]
    keys = _clusters(faulty)
    longest = max((one.window_s for one in faulty), default=0.0)
    estimates = {
        "event_recall": clustered_mean([one.detected for one in faulty], keys),
        "recall": clustered_mean([one.raised_alarm for one in all_faulty], _clusters(all_faulty)),
        "false_positive_rate": clustered_mean([one.raised_alarm for one in healthy], _clusters(healthy)),
        "event_precision": _precision(faulty, healthy),
        "false_alarms_per_hour": _hourly(healthy),
        "false_alarms_per_hour_before_onset": _before_onset(faulty),
        "ttd_median": clustered_median([one.delay_s for one in faulty], keys),
        "ttd_restricted_mean": clustered_mean(
            [min(one.delay_s, one.window_s) for one in faulty], keys, bounds=(0.0, longest)
        ),
        "ttd_median_from_manifest": _from_manifest(faulty),
        "ttd_seen_median": median_time(times, {one.truth.episode: one.truth.cluster for one in faulty}),
        "average_precision": clustered_mean([one.average_precision for one in faulty], keys),
        "vus_pr": clustered_mean([one.vus_pr for one in faulty], keys),
    }
    estimates |= _answers(all_faulty, healthy)
    estimates["balanced_accuracy_answered"] = _answers(
        [one for one in all_faulty if one.answered], [one for one in healthy if one.answered]
    )["balanced_accuracy"]
    shortest = min((one.window_s for one in faulty), default=0.0)
    for horizon in HORIZONS_S:
        within = [float(one.delay_s <= horizon) for one in faulty]
        estimates[f"detected_within_{horizon}s"] = (
            clustered_mean(within, keys)
            if shortest >= horizon
            else unknown(f"faults are only seen for {shortest:.0f} s", len(faulty))
        )
    return estimates


def _clusters(episodes: Sequence[DetectionFacts]) -> list[Hashable]:
    return [one.truth.cluster for one in episodes]


def _answers(faulty: Sequence[DetectionFacts], healthy: Sequence[DetectionFacts]) -> dict[str, Estimate]:
    if not faulty or not healthy:
        missing = "fault" if not faulty else "no-fault"
        return {name: unknown(f"no {missing} episodes") for name in ("balanced_accuracy", "mcc")}
    found, quiet = ([one.correct for one in half] for half in (faulty, healthy))
    if _is_constant([*faulty, *healthy]) and len(set(found)) == len(set(quiet)) == 1:
        # it answers like that in any episode: there is nothing that other episodes could change
        exact = "closed form: the same answer in every episode"
        value = (found[0] + quiet[0]) / 2
        balanced = Estimate(value=value, n=len(found) + len(quiet)).with_interval(value, value, method=exact)
        mcc = matthews_correlation(found, _clusters(faulty), quiet, _clusters(healthy)).value
        return {
            "balanced_accuracy": balanced,
            "mcc": Estimate(value=mcc, n=balanced.n).with_interval(mcc, mcc, method=exact),
        }
    return {
        "balanced_accuracy": balanced_accuracy(found, _clusters(faulty), quiet, _clusters(healthy)),
        "mcc": matthews_correlation(found, _clusters(faulty), quiet, _clusters(healthy)),
    }


def _is_constant(episodes: Sequence[DetectionFacts]) -> bool:
    """Whether a control gave every sample of every episode the same score."""
    rows = [row for one in episodes for row in one.rows]
    if not all(one.answered for one in episodes) or any(row.kind != "control" for row in rows):
        return False
    return len({score for row in rows for score in row.answer.get("scores", (None, math.nan))}) == 1


def _precision(faulty: Sequence[DetectionFacts], healthy: Sequence[DetectionFacts]) -> Estimate:
    everything = [*faulty, *healthy]
    total = sum(one.alarms for one in everything)
    if total == 0:
        return unknown("no alarms", len(everything))
    estimate = clustered_ratio(
        [one.true_alarms for one in everything],
        [one.alarms for one in everything],
        _clusters(everything),
        [one.truth.faulty for one in everything],
    )
    return replace(estimate, n=round(total), k=sum(one.true_alarms for one in everything))


def _hourly(episodes: Sequence[DetectionFacts]) -> Estimate:
    watched = [one for one in episodes if one.answered]
    hours = [one.watched_ns / _HOUR_NS for one in watched]
    return hourly_rate([one.alarms for one in watched], hours, _clusters(watched))


def _before_onset(faulty: Sequence[DetectionFacts]) -> Estimate:
    watched = [one for one in faulty if one.answered and one.truth.onset_ns is not None]
    hours = [max(0, (one.truth.onset_ns or 0) - one.truth.reference_end_ns) / _HOUR_NS for one in watched]
    return hourly_rate([one.alarms_before_onset for one in watched], hours, _clusters(watched))


def _from_manifest(faulty: Sequence[DetectionFacts]) -> Estimate:
    seen = [one for one in faulty if one.truth.manifest_ns is not None]
    if not seen:
        return unknown("no episode in which clients suffered", len(faulty))
    return clustered_median([one.delay_from_manifest_s for one in seen], _clusters(seen))


def constant_answer_floor(faulty: Sequence[DetectionFacts]) -> dict[str, Estimate]:
    """Return the most that a constant answer scores: one half, no correlation, the share of samples in the fault."""
    faulty = [one for one in faulty if one.truth.onset_ns is not None]
    shares = [one.window_s * SECOND_NS / one.watched_ns for one in faulty]
    floor = {
        "balanced_accuracy": Estimate(value=0.5, method="closed form"),
        "mcc": Estimate(value=0.0, method="closed form"),
    }
    if shares:
        floor["average_precision"] = Estimate(value=float(np.mean(shares)), n=len(shares), method="closed form")
        floor["vus_pr"] = Estimate(
            value=float(np.mean([_flat_volume(one) for one in faulty])),
            n=len(shares),
            method="constant score",
        )
    return floor


def _flat_volume(facts: DetectionFacts) -> float:
    """Return the volume of a constant score on the samples of an answer; on seconds where there is none."""
    truth = facts.truth
    times = np.asarray(facts.rows[0].answer.get("times_ns", []), dtype=np.int64)
    if len(times) < 2:
        seconds = max(1, (truth.view_end_ns - truth.reference_end_ns) // SECOND_NS)
        times = truth.reference_end_ns + np.arange(1, seconds + 1) * SECOND_NS
    inside = times > (truth.onset_ns or 0)
    return vus_pr(inside, np.zeros(len(times)), buffer_samples(times))
