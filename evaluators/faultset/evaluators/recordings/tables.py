"""Metrics and tables of detectors on recordings."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.datasets.format.recordings import subtract_intervals
from faultset.evaluators.leaderboards.leaderboard import compute_costs, correct_p_values
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, RECORDED, Entry, SettingsRange, Table
from faultset.evaluators.leaderboards.scores import GROUPS, find_variants, group_of
from faultset.evaluators.recordings.detector_runs import DetectorRun, Outcome, ScoredIncident
from faultset.evaluators.scoring.detection import BUFFER_S, NO_THRESHOLD
from faultset.evaluators.scoring.intervals import (
    Estimate,
    clustered_mean,
    clustered_median,
    clustered_ratio,
    event_rate,
    unknown,
)
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.scoring.paired_tests import paired_difference

BLOCK_S = 1800
"""Length of the blocks of time that count as independent in confidence intervals."""
_DAY_NS = 86_400 * SECOND_NS
_declare = functools.partial(Metric, task="detection")


@dataclass(frozen=True, kw_only=True)
class DetectorRuns:
    """All runs of one detector in a table."""

    runs: tuple[DetectorRun, ...]

    @functools.cached_property
    def incidents(self) -> dict[str, ScoredIncident]:
        """Id -> incident that is scored."""
        recordings = {run.facts.recording: run.facts for run in self.runs}.values()
        return {item.incident: item for facts in recordings for item in facts.incidents if item.scored}

    @functools.cached_property
    def headline(self) -> list[ScoredIncident]:
        return [item for item in self.incidents.values() if item.headline]

    @functools.cached_property
    def delays_s(self) -> dict[str, list[float]]:
        """Incident -> delay of each seed."""
        return _collect(run.compute_delays_s() for run in self.runs)

    @functools.cached_property
    def recalls(self) -> dict[str, float]:
        """Incident -> share of seeds that detect it."""
        return {name: float(np.isfinite(values).mean()) for name, values in self.delays_s.items()}

    @functools.cached_property
    def chances(self) -> dict[str, float]:
        """Headline incident -> chance that the same alarms at random times detect it; mean over seeds."""
        return {
            name: float(np.mean(values)) for name, values in _collect(t.compute_chances() for t in self.runs).items()
        }

    def average_over_recordings(self, value: Callable[[DetectorRun], float]) -> Estimate:
        """Average a value over the seeds of each recording, then over recordings."""
        by_recording: defaultdict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            by_recording[run.facts.recording].append(value(run))
        means = [float(np.mean(values)) for values in by_recording.values()]
        return replace(clustered_mean(means, list(by_recording)), k=None)


def _collect(values_by_name: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    collected: defaultdict[str, list[float]] = defaultdict(list)
    for values in values_by_name:
        for name, value in values.items():
            collected[name].append(value)
    return dict(collected)


Aggregate = Callable[[DetectorRuns], Estimate]


def _recall(detector: DetectorRuns, *, headline: bool = True) -> Estimate:
    items = [item for item in detector.incidents.values() if item.headline == headline]
    if not items:
        return unknown("no such incident in watched time")
    return clustered_mean([detector.recalls[item.incident] for item in items], [item.cluster for item in items])


def _time_to_detect(detector: DetectorRuns) -> Estimate:
    items = detector.headline
    delays = [sorted(detector.delays_s[item.incident]) for item in items]
    medians = [values[len(values) // 2] for values in delays]
    return clustered_median(medians, [item.cluster for item in items])


def _count_alarms_per_block(detector: DetectorRuns, *outcomes: Outcome) -> dict[Hashable, float]:
    """Return the number of alarms with these outcomes in each block of time, as a mean over seeds."""
    seeds = len({run.seed for run in detector.runs})
    counts: defaultdict[Hashable, float] = defaultdict(float)
    for run in detector.runs:
        for alarm in run.alarms:
            if alarm.outcome in outcomes:
                counts[run.facts.recording, alarm.start_ns // (BLOCK_S * SECOND_NS)] += 1 / seeds
    return dict(counts)


def _precision(detector: DetectorRuns) -> Estimate:
    all_alarms = _count_alarms_per_block(detector, "true", "repeated", "other", "decoy", "false")
    correct_alarms = _count_alarms_per_block(detector, "true", "repeated", "other")
    if not all_alarms:
        return unknown("no alarms")
    return clustered_ratio(
        [correct_alarms.get(block, 0.0) for block in all_alarms], list(all_alarms.values()), list(all_alarms)
    )


def _false_alarms(detector: DetectorRuns) -> Estimate:
    counts = _count_alarms_per_block(detector, "false")
    block_ns = BLOCK_S * SECOND_NS
    days: defaultdict[Hashable, float] = defaultdict(float)
    for facts in {run.facts.recording: run.facts for run in detector.runs}.values():
        for start, end in facts.quiet:
            for number in range(start // block_ns, -(-end // block_ns)):
                overlap_ns = min(end, (number + 1) * block_ns) - max(start, number * block_ns)
                days[facts.recording, number] += overlap_ns / _DAY_NS
    return event_rate([counts.get(block, 0.0) for block in days], list(days.values()), list(days))


def _decoys(detector: DetectorRuns) -> Estimate:
    values, keys = [], []
    for run in detector.runs:
        alarms = [alarm.start_ns for alarm in run.alarms if alarm.outcome == "decoy"]
        for start, end in run.facts.decoys:
            if subtract_intervals([(start, end)], run.facts.watched) or not _is_alone(run, start, end):
                continue
            values.append(float(any(start <= time < end for time in alarms)))
            keys.append((run.facts.recording, start))
    return clustered_mean(values, keys) if values else unknown("no decoy in watched time")


def _is_alone(run: DetectorRun, start_ns: int, end_ns: int) -> bool:
    """Return whether no incident and no void stretch overlaps an interval."""
    busy = [(item.start_ns, item.end_ns) for item in run.facts.incidents]
    return subtract_intervals([(start_ns, end_ns)], [*busy, *run.facts.voids]) == [(start_ns, end_ns)]


def _count_alarms_per_incident(detector: DetectorRuns) -> Estimate:
    detected = sum(run.count("true") for run in detector.runs)
    if not detected:
        return unknown("no incident detected")
    alarms = detected + sum(run.count("repeated") for run in detector.runs)
    return Estimate(value=alarms / detected, n=detected)


RECALL = _declare(
    name="recall",
    title="recall",
    unit="share",
    meaning="of the incidents that clients noticed, the share during which an alarm begins",
)

AGGREGATES: Mapping[Metric, Aggregate] = {
    RECALL: _recall,
    _declare(
        name="precision",
        title="precision",
        unit="share",
        meaning="share of alarms that begin in an incident; alarms at decoys count as wrong",
    ): _precision,
    _declare(
        name="false_alarms_per_day",
        title="false alarms / day",
        unit="per day",
        better="lower",
        brief=True,
        meaning="alarms per day of watched time without incidents, decoys and void stretches",
    ): _false_alarms,
    _declare(
        name="ttd_median",
        title="median TTD",
        unit="s",
        better="lower",
        brief=True,
        meaning="median seconds from the start of an incident to its first alarm; a miss is infinite",
    ): _time_to_detect,
    _declare(
        name="decoys_alarmed",
        title="decoys alarmed",
        unit="share",
        better="lower",
        brief=True,
        meaning="share of decoys in which an alarm begins; decoys that overlap an incident are excluded",
    ): _decoys,
    _declare(
        name="alarms_per_incident",
        title="alarms / incident",
        unit="rank",
        better="lower",
        brief=True,
        meaning="mean number of alarms that begin in a detected incident; 1 is best",
    ): _count_alarms_per_incident,
    _declare(
        name="vus_pr",
        title="VUS-PR",
        unit="share",
        brief=True,
        meaning="volume under the precision-recall surface of the scores in units of the threshold; a step "
        f"function as in TSB-AD, buffer {BUFFER_S} s; mean over recordings",
    ): lambda detector: detector.average_over_recordings(lambda run: run.volumes.pr),
    _declare(
        name="vus_roc",
        title="VUS-ROC",
        unit="share",
        brief=True,
        meaning=f"volume under the ROC surface of the same scores, buffer {BUFFER_S} s; about 0.5 for a constant score",
    ): lambda detector: detector.average_over_recordings(lambda run: run.volumes.roc),
    _declare(
        name="affiliation_f1",
        title="affiliation F1",
        unit="share",
        brief=True,
        meaning="harmonic mean of affiliation precision and recall, the nearness of alarms and incidents compared with "
        "random instants; mean over recordings",
    ): lambda detector: detector.average_over_recordings(lambda run: run.affiliation.f1),
    _declare(
        name="affiliation_precision",
        title="affiliation precision",
        unit="share",
        headline=False,
        meaning="nearness of alarms to incidents",
    ): lambda detector: detector.average_over_recordings(lambda run: run.affiliation.precision),
    _declare(
        name="affiliation_recall",
        title="affiliation recall",
        unit="share",
        headline=False,
        meaning="nearness of incidents to alarms",
    ): lambda detector: detector.average_over_recordings(lambda run: run.affiliation.recall),
    _declare(
        name="recall_unnoticed",
        title="recall, unnoticed",
        unit="share",
        brief=True,
        meaning="recall of incidents that clients did not notice",
    ): functools.partial(_recall, headline=False),
}
"""Metric -> function that computes it."""
BY_POLICY = ("recall", "precision", "false_alarms_per_day")
"""Metrics that are also computed with the thresholds of other policies."""


def estimate_metrics(detector: DetectorRuns) -> dict[str, Estimate]:
    """Return the value of every metric by name."""
    return {metric.name: aggregate(detector) for metric, aggregate in AGGREGATES.items()}


def build_policy_metrics(policy: str) -> dict[Metric, Aggregate]:
    """Return the function that computes each metric of a threshold policy."""
    return {
        metric.with_policy(policy): aggregate for metric, aggregate in AGGREGATES.items() if metric.name in BY_POLICY
    }


def estimate_policy_metrics(detector: DetectorRuns | None, policy: str) -> dict[str, Estimate]:
    """Return the value of every metric of a policy by name; unknown if the detector lacks its thresholds."""
    no_threshold = unknown(NO_THRESHOLD.format(policy=policy))
    return {
        metric.name: no_threshold if detector is None else aggregate(detector)
        for metric, aggregate in build_policy_metrics(policy).items()
    }


def list_recalls_and_chances(detector: DetectorRuns) -> tuple[list[float], list[float], list[Hashable]]:
    """Return for each headline incident its recall, the recall of the same alarms at random times, and its cluster."""
    items = detector.headline
    return (
        [detector.recalls[item.incident] for item in items],
        [detector.chances[item.incident] for item in items],
        [item.cluster for item in items],
    )


def list_recall_gains(detector: DetectorRuns) -> list[float]:
    """Return for each headline incident its recall minus the recall of the same alarms at random times."""
    recalls, chances, _ = list_recalls_and_chances(detector)
    return [recall - chance for recall, chance in zip(recalls, chances, strict=True)]


def compute_recall_gain(detector: DetectorRuns) -> float:
    """Return the mean of `list_recall_gains`; NaN without an incident."""
    gains = list_recall_gains(detector)
    return float(np.mean(gains)) if gains else math.nan


SAME_RATE = "random alarms"
"""The control of every detector: its own alarms, all shifted by the same random time."""


def build_recording_tables(
    runs: Mapping[str, Sequence[DetectorRun]],
    seed: int,
    threshold_rule: str,
    by_policy: Mapping[str, Mapping[str, Sequence[DetectorRun]]],
    reconstructions: Collection[str] = (),
) -> list[Table]:
    """Build a table for each application and each group of methods with the same inputs.

    With several applications, tables for all of them together follow. A method that was also run with other settings
    has one entry, with the range of its recall over the settings.

    `runs`: detector -> its runs.
    `seed`: seed of tests that draw sign flips.
    `threshold_rule`: threshold policy of all detectors.
    `by_policy`: other threshold policy -> detector -> runs with the thresholds of that policy.
    `reconstructions`: methods whose papers do not define them completely.
    """
    apps = sorted({run.facts.app for detector_runs in runs.values() for run in detector_runs})
    tables = []
    for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
        for group in GROUPS:
            chosen = _choose_runs(runs, app, group)
            others = {policy: _choose_runs(policy_runs, app, group) for policy, policy_runs in by_policy.items()}
            if chosen:
                tables.append(_build_table(chosen, others, app, group, seed, threshold_rule, reconstructions))
    return tables


def _choose_runs(runs: Mapping[str, Sequence[DetectorRun]], app: str, group: str) -> dict[str, DetectorRuns]:
    chosen = {
        name: DetectorRuns(runs=tuple(run for run in detector_runs if app in (ALL_APPS, run.facts.app)))
        for name, detector_runs in runs.items()
        if group_of(detector_runs[0].rows[0]) == group
    }
    return {name: detector for name, detector in chosen.items() if detector.runs}


def _build_table(
    detectors: Mapping[str, DetectorRuns],
    by_policy: Mapping[str, Mapping[str, DetectorRuns]],
    app: str,
    group: str,
    seed: int,
    threshold_rule: str,
    reconstructions: Collection[str],
) -> Table:
    variants = find_variants(detectors)
    ranges = {name: _find_settings_range([detectors[each] for each in (name, *variants[name])]) for name in variants}
    alternatives = {each for names in variants.values() for each in names}
    detectors = {name: detector for name, detector in detectors.items() if name not in alternatives}
    entries = {
        name: replace(
            _build_entry(name, detector, {policy: by_policy[policy].get(name) for policy in by_policy}, seed),
            reconstruction=name in reconstructions,
            settings_range=ranges.get(name),
        )
        for name, detector in detectors.items()
    }
    methods = {name: entry.against for name, entry in entries.items() if entry.against is not None}
    first = next(iter(detectors.values()))
    clusters = len({item.cluster for item in first.headline})
    adjusted, missing_p_reason = correct_p_values(methods, clusters)
    gains = {name: compute_recall_gain(detector) for name, detector in detectors.items()}
    recordings = {run.facts.recording: run.facts for run in first.runs}.values()
    return Table(
        task="detection",
        protocol=RECORDED,
        app=app,
        verdict=HEADLINE,
        group=group,
        metrics=(*AGGREGATES, *(metric for policy in by_policy for metric in build_policy_metrics(policy))),
        entries=_rank_entries(entries, gains, adjusted),
        floor={},
        episodes=len(first.headline),
        clusters=clusters,
        strongest_control=SAME_RATE,
        no_p=missing_p_reason,
        threshold_rule=threshold_rule,
        watched_s=sum(facts.watched_ns for facts in recordings) / 1e9,
    )


def _rank_entries(
    entries: Mapping[str, Entry], gains: Mapping[str, float], adjusted: Mapping[str, float]
) -> tuple[Entry, ...]:
    order = sorted(entries, key=lambda name: (-gains[name] if not math.isnan(gains[name]) else math.inf, name))
    return tuple(
        replace(
            entries[name],
            rank=1 + sum(gains[other] > gains[name] + 1e-9 for other in order),
            adjusted_p=adjusted.get(name),
        )
        for name in order
    )


def _find_settings_range(settings: Sequence[DetectorRuns]) -> SettingsRange | None:
    """Return the range of the first metric over the settings of a method."""
    first = next(iter(AGGREGATES))
    return SettingsRange.of(AGGREGATES[first](detector).value for detector in settings)


def _build_entry(name: str, detector: DetectorRuns, by_policy: Mapping[str, DetectorRuns | None], seed: int) -> Entry:
    rows = [row for run in detector.runs for row in run.rows]
    metrics = estimate_metrics(detector)
    for policy, runs in by_policy.items():
        metrics |= estimate_policy_metrics(runs, policy)
    recalls, chances, clusters = list_recalls_and_chances(detector)
    return Entry(
        baseline=name,
        kind=rows[0].kind,
        extra_inputs=rows[0].needs,
        rank=0,
        metrics=metrics,
        rows=len(rows),
        failed=dict(Counter(row.status for row in rows if row.status != "ok")),
        **compute_costs(rows),
        seeds=len({row.seed for row in rows}),
        against=paired_difference(recalls, chances, clusters, seed) if recalls and rows[0].kind != "control" else None,
    )
