"""Tables of detectors on recordings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, RECORDED, Entry, SettingsRange, Table
from faultset.evaluators.leaderboards.scores import GROUPS, find_variants, group_of
from faultset.evaluators.leaderboards.tables import correct_p_values
from faultset.evaluators.recordings.detector_runs import DetectorRun
from faultset.evaluators.recordings.metrics import (
    AGGREGATES,
    DetectorRuns,
    build_policy_metrics,
    compute_recall_gain,
    estimate_metrics,
    estimate_policy_metrics,
    list_recalls_and_chances,
)
from faultset.evaluators.statistics.comparison import paired_difference
from faultset.evaluators.statistics.intervals import median_or_nan

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

    Parameters
    ----------
    runs
        Detector -> its runs.
    seed
        Seed of tests that draw sign flips.
    threshold_rule
        Threshold policy of all detectors.
    by_policy
        Other threshold policy -> detector -> runs with the thresholds of that policy.
    reconstructions
        Methods whose papers do not define them completely.
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
        seconds=median_or_nan(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in rows),
        fit_seconds=median_or_nan(row.fit_seconds for row in rows),
        peak_bytes=median_or_nan(row.peak_bytes for row in rows),
        seeds=len({row.seed for row in rows}),
        against=paired_difference(recalls, chances, clusters, seed) if recalls and rows[0].kind != "control" else None,
    )
