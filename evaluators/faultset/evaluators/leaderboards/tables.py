"""Tables of methods with the same input, on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from faultset.core.printable import count_text
from faultset.evaluators.leaderboards.fault_loudness import Loudness, classify_loudness
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, UNKNOWN, Entry, SettingsRange, Table
from faultset.evaluators.leaderboards.scores import GROUPS, EpisodeScores, Setting, is_learnable, is_scored
from faultset.evaluators.results.rows import PROTOCOLS, TASKS
from faultset.evaluators.results.truth import UNNOTICED, Truth
from faultset.evaluators.scoring.diagnosis import NOTHING_TO_LEARN_FROM
from faultset.evaluators.scoring.metrics import Metric, ScoredCase
from faultset.evaluators.scoring.registry import TASK_METRICS
from faultset.evaluators.statistics.comparison import (
    PairedDifference,
    clusters_needed,
    holm,
    paired_difference,
    prediction_interval,
)
from faultset.evaluators.statistics.intervals import Estimate, median_or_nan, unknown

VERDICTS: tuple[str, ...] = (HEADLINE, "latent", "silent", UNNOTICED)
_RANKING_METRICS = 4
"""Headline metrics that sort methods: the first ranks, the others break ties."""


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """The methods and episodes of a table."""

    setting: Setting
    app: str
    verdict: str
    group: str
    faults: Loudness
    seed: int
    faulty: frozenset[str]
    """Fault episodes that count."""
    healthy: frozenset[str]
    """No-fault episodes."""
    baselines: tuple[str, ...]

    @property
    def episodes(self) -> frozenset[str]:
        """Episodes on which methods are compared."""
        return self.faulty | self.healthy if self.setting.task == "detection" else self.faulty


def build_tables(scores: EpisodeScores, seed: int, reconstructions: Collection[str] = ()) -> list[Table]:
    """Build the tables of each application, then of all together; methods that see only telemetry come first.

    Gray and loud headline faults also get a table each, over all applications together.

    Parameters
    ----------
    reconstructions
        Methods whose papers do not define them completely.
    """
    apps = sorted({truth.app for truth in scores.truths.values()})
    shown = [*apps, ALL_APPS] if len(apps) > 1 else apps
    tables: list[Table] = []
    for app, group, task, protocol, verdict in product(shown, GROUPS, TASKS, PROTOCOLS, VERDICTS):
        loudnesses: tuple[Loudness, ...] = (
            ("all", "gray", "loud") if (app, verdict) == (shown[-1], HEADLINE) else ("all",)
        )
        for faults in loudnesses:
            selection = _select(scores, Setting(task, protocol), app, verdict, group, faults, seed)
            if selection is not None:
                table = _build_table(scores, selection, reconstructions)
                tables.append(_add_predictions(table, tables) if app == ALL_APPS else table)
    return tables


def _add_predictions(pooled: Table, tables: Sequence[Table]) -> Table:
    """Predict the first metric of each method for one more application."""
    key = (pooled.task, pooled.protocol, pooled.verdict, pooled.group, pooled.faults)
    ranked_by = pooled.metrics[0].name
    values: dict[str, list[float]] = {}
    for table in tables:
        if (table.task, table.protocol, table.verdict, table.group, table.faults) == key:
            for entry in table.entries:
                values.setdefault(entry.baseline, []).append(entry.metrics[ranked_by].value)
    if not values:
        return pooled
    entries = tuple(replace(entry, across=prediction_interval(values[entry.baseline])) for entry in pooled.entries)
    return replace(pooled, entries=entries)


def _select(
    scores: EpisodeScores, setting: Setting, app: str, verdict: str, group: str, faults: Loudness, seed: int
) -> _Selection | None:
    by_name = scores.cases.get(setting, {})
    baselines = tuple(name for name in by_name if scores.groups[name] == group)
    if not baselines:
        return None
    episodes = {e for name in baselines for e in by_name[name]}
    # keep episodes with labels that no training episode has; `_write_note` names the methods without a score
    is_scorable = TASK_METRICS[setting.task].is_scorable if setting.task != "detection" else lambda truth: True
    truths = {e: truth for e in episodes if app in (ALL_APPS, (truth := scores.truths[e]).app)}
    faulty = frozenset(
        e
        for e, truth in truths.items()
        if truth.faulty
        and is_scorable(truth)
        and _counts_as(truth, verdict)
        and (faults == "all" or classify_loudness(truth) == faults)
    )
    healthy = frozenset(e for e, truth in truths.items() if not truth.faulty)
    only_healthy = healthy and verdict == HEADLINE and faults == "all" and setting.task == "detection"
    if not faulty and not only_healthy:
        return None
    return _Selection(
        setting=setting,
        app=app,
        verdict=verdict,
        group=group,
        faults=faults,
        seed=seed,
        faulty=faulty,
        healthy=healthy,
        baselines=baselines,
    )


def _counts_as(truth: Truth, verdict: str) -> bool:
    return truth.verdict == verdict or (verdict == HEADLINE and truth.verdict not in VERDICTS)


def _compute_estimates(
    selection: _Selection, metrics: Sequence[Metric], cases: Mapping[str, ScoredCase]
) -> dict[str, Estimate]:
    """Compute all metrics of a method; episodes with a fault come before episodes without one."""
    halves = (selection.faulty, selection.healthy)
    faulty, healthy = ([cases[e] for e in sorted(half) if e in cases] for half in halves)
    if selection.setting.task == "rca":
        faulty = [case for case in faulty if is_scored(case)]
    estimates = {metric.name: metric.estimate([*faulty, *healthy]) for metric in metrics}
    if selection.setting.task == "rca" and not any(is_learnable(case) for case in faulty):
        unlearned = unknown(NOTHING_TO_LEARN_FROM)
        estimates |= {metric.name: unlearned for metric in metrics if metric.episodes == "fault"}
    return estimates


def _find_settings_range(
    scores: EpisodeScores, selection: _Selection, name: str, metric: Metric, default: Estimate
) -> SettingsRange | None:
    """Return the range of a metric over the settings that a method was run with; None for one setting."""
    variants = scores.variants.get(selection.setting, {}).get(name, {})
    others = (_compute_estimates(selection, [metric], cases)[metric.name].value for cases in variants.values())
    return SettingsRange.of([default.value, *others])


def _score_guessing(scores: EpisodeScores, selection: _Selection, metrics: Sequence[Metric]) -> dict[str, Estimate]:
    """Return the scores of guessing on the episodes of a table."""
    by_name, rca = scores.cases[selection.setting], selection.setting.task == "rca"
    cases: dict[str, ScoredCase] = {}
    for name in selection.baselines:
        for episode in sorted((selection.faulty | selection.healthy) & by_name[name].keys()):
            if not rca or is_scored(by_name[name][episode]):
                cases.setdefault(episode, by_name[name][episode])
    if rca and not any(is_learnable(case) for case in cases.values()):
        cases = {}
    guesses = {metric.name: metric.estimate_guess([cases[e] for e in sorted(cases)]) for metric in metrics}
    return {name: guess for name, guess in guesses.items() if guess is not None}


def _write_note(scores: EpisodeScores, selection: _Selection, scored: Collection[str]) -> str:
    notes = []
    if selection.setting.task == "detection" and not selection.healthy:
        notes.append("Without no-fault episodes false alarms are unknown, and always-yes would look perfect.")
    elif selection.setting.task == "detection" and not selection.faulty:
        notes.append(f"Without {selection.verdict} fault episodes only false alarms can be judged.")
    unlearned = [name for name in scores.sort_methods(selection.baselines) if name not in scored]
    if selection.setting.task == "rca" and unlearned:
        verb = "needs" if len(unlearned) == 1 else "need"
        notes.append(f"{NOTHING_TO_LEARN_FROM.capitalize()}, which {', '.join(unlearned)} {verb}.")
    unknown_verdicts = sum(scores.truths[e].verdict == UNKNOWN for e in selection.faulty)
    if unknown_verdicts:
        notes.append(f"{unknown_verdicts} of the fault episodes have no verdict and count as headline.")
    return " ".join(notes)


def _find_scored(scores: EpisodeScores, selection: _Selection, right: Mapping[str, Mapping[str, float]]) -> set[str]:
    """Return the methods that have a score in a table."""
    scored = {name for name in selection.baselines if selection.episodes & right[name].keys()}
    if selection.setting.task != "rca":
        return scored
    cases = scores.cases[selection.setting]
    return {
        name for name in scored if any(is_learnable(cases[name][e]) for e in selection.episodes & right[name].keys())
    }


def _build_table(scores: EpisodeScores, selection: _Selection, reconstructions: Collection[str]) -> Table:
    task = selection.setting.task
    metrics = scores.list_metrics(task, by_policy=True)
    by_name = scores.cases[selection.setting]
    estimates = {name: _compute_estimates(selection, metrics, by_name[name]) for name in selection.baselines}
    right = scores.compute_correctness(selection.setting)
    scored = _find_scored(scores, selection, right)
    key = _build_sort_key(metrics, estimates)
    names = sorted(selection.baselines, key=lambda name: (key(name), name))
    control = next((name for name in names if name in scored and scores.is_control(name)), None)
    differences = {
        name: _compare(right[name], right[control], scores, selection)
        for name in names
        if name in scored and control is not None and not scores.is_control(name)
    }
    adjusted, missing_p_reason = correct_p_values(
        differences, len({scores.truths[e].cluster for e in selection.episodes})
    )
    entries = [
        replace(
            _build_entry(scores, selection, name),
            rank=1 + sum(key(other)[0] < key(name)[0] for other in names),
            metrics=estimates[name],
            against=differences.get(name),
            adjusted_p=adjusted.get(name),
            reconstruction=name in reconstructions,
            settings_range=_find_settings_range(scores, selection, name, metrics[0], estimates[name][metrics[0].name]),
        )
        for name in names
    ]
    return Table(
        task=task,
        protocol=selection.setting.protocol,
        app=selection.app,
        verdict=selection.verdict,
        group=selection.group,
        faults=selection.faults,
        metrics=metrics,
        entries=tuple(entries),
        floor=_score_guessing(scores, selection, metrics),
        episodes=len(selection.faulty),
        clusters=len({scores.truths[episode].cluster for episode in selection.faulty}),
        no_fault_episodes=len(selection.healthy),
        strongest_control=control,
        note=_write_note(scores, selection, scored),
        no_p=missing_p_reason,
        threshold_rule=scores.threshold_rule if task == "detection" else "",
        **_count_targets([scores.truths[e] for e in sorted(selection.faulty)]),
    )


def _count_targets(truths: Sequence[Truth]) -> dict[str, Any]:
    """Count candidates and how often each is a cause, in the episodes of one application."""
    if len({truth.app for truth in truths}) != 1:
        return {}
    causes = Counter(name for truth in truths for name in {names[0] for names in truth.causes})
    return {
        "candidates": len({name for truth in truths for name in truth.candidates}),
        "targets": dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
    }


def correct_p_values(differences: Mapping[str, PairedDifference], clusters: int) -> tuple[dict[str, float], str]:
    """Return Holm-corrected p-values, or the reason why there are none."""
    needed = clusters_needed(len(differences))
    if differences and clusters < needed:
        comparisons = "1 comparison needs" if len(differences) == 1 else f"{len(differences)} comparisons need"
        return {}, f"{comparisons} {count_text(needed, 'cluster')}, but the table has {clusters}"
    return dict(zip(differences, holm([pair.test.p for pair in differences.values()]), strict=True)), ""


def _build_entry(scores: EpisodeScores, selection: _Selection, name: str) -> Entry:
    """Return a method with the cost of its answers."""
    cases = scores.cases[selection.setting][name]
    rows = [row for e in sorted(selection.faulty | selection.healthy) if e in cases for row in cases[e].rows]
    first = next(iter(cases.values())).rows[0]
    failed = Counter(row.status for row in rows if row.status != "ok" and row.episode in selection.episodes)
    return Entry(
        baseline=name,
        kind=first.kind,
        extra_inputs=first.needs,
        rank=0,
        metrics={},
        rows=len(rows),
        failed=dict(failed),
        seconds=median_or_nan(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in rows),
        fit_seconds=median_or_nan(row.fit_seconds for row in rows),
        peak_bytes=median_or_nan(row.peak_bytes for row in rows),
        seeds=len({row.seed for row in rows}),
        seed_spread=scores.compute_seed_deviation(selection.setting, name, sorted(selection.episodes)),
    )


def _build_sort_key(
    metrics: Sequence[Metric], estimates: Mapping[str, Mapping[str, Estimate]]
) -> Callable[[str], tuple[float, ...]]:
    """Return a key that sorts the best method first; unknown values come last."""
    ranking = [metric for metric in metrics if metric.headline][:_RANKING_METRICS]

    def key(name: str) -> tuple[float, ...]:
        values = []
        for metric in ranking:
            value = estimates[name][metric.name].value
            if math.isnan(value):
                values.append(math.inf)
            else:
                values.append(round(-value if metric.better == "higher" else value, 9))
        return tuple(values)

    return key


def _compare(
    first: Mapping[str, float], second: Mapping[str, float], scores: EpisodeScores, selection: _Selection
) -> PairedDifference:
    """Compare two methods by the task's main metric.

    If this metric is a balanced one, fault episodes and no-fault episodes have the same weight.
    """
    common = sorted(first.keys() & second.keys() & selection.episodes)
    truths = [scores.truths[e] for e in common]
    return paired_difference(
        [first[e] for e in common],
        [second[e] for e in common],
        [truth.cluster for truth in truths],
        selection.seed,
        strata=[truth.faulty for truth in truths]
        if TASK_METRICS[selection.setting.task].correctness.balanced
        else None,
    )
