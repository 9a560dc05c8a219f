"""Build a leaderboard and its tables from result rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, TypedDict

import numpy as np

from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.trajectory_contents import InspectedServices
from faultset.core.printable import count_text
from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.agents import agent_lines
from faultset.evaluators.leaderboards.records import (
    ALL_APPS,
    HEADLINE,
    TELEMETRY,
    UNKNOWN,
    Entry,
    Failure,
    Leaderboard,
    Misses,
    SettingsRange,
    Table,
    is_headline,
)
from faultset.evaluators.leaderboards.scores import (
    GROUPS,
    Cases,
    EpisodeScores,
    Setting,
    build_curves,
    build_strata,
    is_learnable,
    is_scored,
    score_episodes,
)
from faultset.evaluators.results.rows import NO_FAILURES, PROTOCOLS, TASKS, ResultRow
from faultset.evaluators.results.truth import UNNOTICED, Loudness, Truth, classify_loudness
from faultset.evaluators.scoring.diagnosis import NOTHING_TO_LEARN_FROM
from faultset.evaluators.scoring.intervals import Estimate, median_or_nan, unknown
from faultset.evaluators.scoring.localization import ANSWER_KINDS, first_rank
from faultset.evaluators.scoring.metrics import Metric, ScoredCase
from faultset.evaluators.scoring.paired_tests import (
    PairedDifference,
    clusters_needed,
    holm,
    paired_difference,
    prediction_interval,
)
from faultset.evaluators.scoring.registry import TASK_METRICS
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, choose_policies

VERDICTS: tuple[str, ...] = (HEADLINE, "latent", "silent", UNNOTICED)
_RANKING_METRICS = 4
"""Number of headline metrics that sort methods: the first ranks, the others break ties."""


@dataclass(frozen=True, kw_only=True)
class _TableBuilder:
    """The methods and episodes of a table."""

    scores: EpisodeScores
    setting: Setting
    app: str
    verdict: str
    group: str
    faults: Loudness
    faulty: frozenset[str]
    """Fault episodes that count."""
    healthy: frozenset[str]
    """No-fault episodes."""
    baselines: tuple[str, ...]

    @property
    def cases(self) -> Cases:
        """The answers of all methods to the question of the table."""
        return self.scores.cases[self.setting]

    @property
    def is_rca(self) -> bool:
        """Whether methods name a system level and a fault type."""
        return self.setting.task == "rca"

    @property
    def episodes(self) -> frozenset[str]:
        """Episodes on which methods are compared."""
        return self.faulty | self.healthy if self.setting.task == "detection" else self.faulty

    def build(self, seed: int, reconstructions: Collection[str]) -> Table:
        """Build the table; `seed` is for tests that draw sign flips."""
        scores, task = self.scores, self.setting.task
        metrics = scores.list_metrics(task, by_policy=True)
        estimates = {name: self._compute_estimates(metrics, self.cases[name]) for name in self.baselines}
        right = scores.compute_correctness(self.setting)
        scored = self._find_scored(right)
        key = _build_sort_key(metrics, estimates)
        names = sorted(self.baselines, key=lambda name: (key(name), name))
        control = next((name for name in names if name in scored and scores.is_control(name)), None)
        differences = {
            name: self._compare(right[name], right[control], seed)
            for name in names
            if name in scored and control is not None and not scores.is_control(name)
        }
        clusters = len({scores.truths[e].cluster for e in self.episodes})
        adjusted, missing_p_reason = correct_p_values(differences, clusters)
        entries = [
            replace(
                self._build_entry(name),
                rank=1 + sum(key(other)[0] < key(name)[0] for other in names),
                metrics=estimates[name],
                against=differences.get(name),
                adjusted_p=adjusted.get(name),
                reconstruction=name in reconstructions,
                settings_range=self._find_settings_range(name, metrics[0], estimates[name][metrics[0].name]),
            )
            for name in names
        ]
        return Table(
            task=task,
            protocol=self.setting.protocol,
            app=self.app,
            verdict=self.verdict,
            group=self.group,
            faults=self.faults,
            metrics=metrics,
            entries=tuple(entries),
            floor=self._score_guessing(metrics),
            episodes=len(self.faulty),
            clusters=len({scores.truths[episode].cluster for episode in self.faulty}),
            no_fault_episodes=len(self.healthy),
            strongest_control=control,
            note=self._write_note(scored),
            no_p=missing_p_reason,
            threshold_rule=scores.threshold_rule if task == "detection" else "",
            **_count_targets([scores.truths[e] for e in sorted(self.faulty)]),
        )

    def _compute_estimates(self, metrics: Sequence[Metric], cases: Mapping[str, ScoredCase]) -> dict[str, Estimate]:
        """Compute all metrics of a method; episodes with a fault come before episodes without one."""
        faulty, healthy = ([cases[e] for e in sorted(half) if e in cases] for half in (self.faulty, self.healthy))
        if self.is_rca:
            faulty = [case for case in faulty if is_scored(case)]
        estimates = {metric.name: metric.estimate([*faulty, *healthy]) for metric in metrics}
        if self.is_rca and not any(is_learnable(case) for case in faulty):
            unlearned = unknown(NOTHING_TO_LEARN_FROM)
            estimates |= {metric.name: unlearned for metric in metrics if metric.episodes == "fault"}
        return estimates

    def _find_settings_range(self, name: str, metric: Metric, default: Estimate) -> SettingsRange | None:
        """Return the range of a metric over the settings that a method was run with; None for one setting."""
        variants = self.scores.variants.get(self.setting, {}).get(name, {})
        others = (self._compute_estimates([metric], cases)[metric.name].value for cases in variants.values())
        return SettingsRange.of([default.value, *others])

    def _score_guessing(self, metrics: Sequence[Metric]) -> dict[str, Estimate]:
        cases: dict[str, ScoredCase] = {}
        for name in self.baselines:
            for episode in sorted((self.faulty | self.healthy) & self.cases[name].keys()):
                if not self.is_rca or is_scored(self.cases[name][episode]):
                    cases.setdefault(episode, self.cases[name][episode])
        if self.is_rca and not any(is_learnable(case) for case in cases.values()):
            cases = {}
        guesses = {metric.name: metric.estimate_guess([cases[e] for e in sorted(cases)]) for metric in metrics}
        return {name: guess for name, guess in guesses.items() if guess is not None}

    def _write_note(self, scored: Collection[str]) -> str:
        notes = []
        if self.setting.task == "detection" and not self.healthy:
            notes.append("Without no-fault episodes false alarms are unknown, and always-yes would look perfect.")
        elif self.setting.task == "detection" and not self.faulty:
            notes.append(f"Without {self.verdict} fault episodes only false alarms can be judged.")
        unlearned = [name for name in self.scores.sort_methods(self.baselines) if name not in scored]
        if self.is_rca and unlearned:
            verb = "needs" if len(unlearned) == 1 else "need"
            notes.append(f"{NOTHING_TO_LEARN_FROM.capitalize()}, which {', '.join(unlearned)} {verb}.")
        unknown_verdicts = sum(self.scores.truths[e].verdict == UNKNOWN for e in self.faulty)
        if unknown_verdicts:
            notes.append(f"{unknown_verdicts} of the fault episodes have no verdict and count as headline.")
        return " ".join(notes)

    def _find_scored(self, right: Mapping[str, Mapping[str, float]]) -> set[str]:
        answered = {name: self.episodes & right[name].keys() for name in self.baselines}
        if not self.is_rca:
            return {name for name in self.baselines if answered[name]}
        return {name for name in self.baselines if any(is_learnable(self.cases[name][e]) for e in answered[name])}

    def _build_entry(self, name: str) -> Entry:
        """Return a method with the cost of its answers."""
        cases = self.cases[name]
        rows = [row for e in sorted(self.faulty | self.healthy) if e in cases for row in cases[e].rows]
        first = next(iter(cases.values())).rows[0]
        return Entry(
            baseline=name,
            kind=first.kind,
            extra_inputs=first.needs,
            rank=0,
            metrics={},
            rows=len(rows),
            failed=dict(Counter(row.status for row in rows if row.status != "ok" and row.episode in self.episodes)),
            seeds=len({row.seed for row in rows}),
            seed_spread=self.scores.compute_seed_deviation(self.setting, name, sorted(self.episodes)),
            **compute_costs(rows),
        )

    def _compare(self, first: Mapping[str, float], second: Mapping[str, float], seed: int) -> PairedDifference:
        """Compare two methods by the task's main metric.

        If this metric is a balanced one, fault episodes and no-fault episodes have the same weight.
        """
        common = sorted(first.keys() & second.keys() & self.episodes)
        truths = [self.scores.truths[e] for e in common]
        is_balanced = TASK_METRICS[self.setting.task].correctness.balanced
        return paired_difference(
            [first[e] for e in common],
            [second[e] for e in common],
            [truth.cluster for truth in truths],
            seed,
            strata=[truth.faulty for truth in truths] if is_balanced else None,
        )


def build_tables(scores: EpisodeScores, seed: int, reconstructions: Collection[str] = ()) -> list[Table]:
    """Build the tables of each application, then of all together; methods that see only telemetry come first.

    Gray and loud faults that clients noticed also get a table each, over all applications.
    """
    apps = sorted({truth.app for truth in scores.truths.values()})
    shown = [*apps, ALL_APPS] if len(apps) > 1 else apps
    tables: list[Table] = []
    for app, group, task, protocol, verdict in product(shown, GROUPS, TASKS, PROTOCOLS, VERDICTS):
        loudnesses: tuple[Loudness, ...] = (
            ("all", "gray", "loud") if (app, verdict) == (shown[-1], HEADLINE) else ("all",)
        )
        for faults in loudnesses:
            builder = _select_content(scores, Setting(task, protocol), app, verdict, group, faults)
            if builder is not None:
                table = builder.build(seed, reconstructions)
                tables.append(_add_predictions(table, tables) if app == ALL_APPS else table)
    return tables


def _add_predictions(pooled: Table, tables: Sequence[Table]) -> Table:
    """Predict the first metric of each method for one more application."""
    values: dict[str, list[float]] = {}
    for table in tables:
        if replace(table, app=pooled.app).key == pooled.key:
            for entry in table.entries:
                values.setdefault(entry.baseline, []).append(entry.metrics[pooled.metrics[0].name].value)
    if not values:
        return pooled
    entries = tuple(replace(entry, across=prediction_interval(values[entry.baseline])) for entry in pooled.entries)
    return replace(pooled, entries=entries)


def _select_content(
    scores: EpisodeScores, setting: Setting, app: str, verdict: str, group: str, faults: Loudness
) -> _TableBuilder | None:
    """Choose the methods and episodes of a table; None if it would be empty."""
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
        and (truth.verdict == verdict or (verdict == HEADLINE and truth.verdict not in VERDICTS))
        and (faults == "all" or classify_loudness(truth) == faults)
    )
    healthy = frozenset(e for e, truth in truths.items() if not truth.faulty)
    only_healthy = healthy and verdict == HEADLINE and faults == "all" and setting.task == "detection"
    if not faulty and not only_healthy:
        return None
    return _TableBuilder(
        scores=scores, setting=setting, app=app, verdict=verdict, group=group, faults=faults, faulty=faulty,
        healthy=healthy, baselines=baselines,
    )  # fmt: skip


def _count_targets(truths: Sequence[Truth]) -> dict[str, Any]:
    """Count candidates and how often each is a cause, in the episodes of one application."""
    if len({truth.app for truth in truths}) != 1:
        return {}
    causes = Counter(name for truth in truths for name in {names[0] for names in truth.causes})
    return {
        "candidates": len({name for truth in truths for name in truth.candidates}),
        "targets": dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
    }


class AnswerCosts(TypedDict):
    """Median times and memory of answers, as fields of an `Entry`."""

    seconds: float
    fit_seconds: float
    peak_bytes: float


def compute_costs(rows: Sequence[ResultRow]) -> AnswerCosts:
    return {
        "seconds": median_or_nan(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in rows),
        "fit_seconds": median_or_nan(row.fit_seconds for row in rows),
        "peak_bytes": median_or_nan(row.peak_bytes for row in rows),
    }


def correct_p_values(differences: Mapping[str, PairedDifference], clusters: int) -> tuple[dict[str, float], str]:
    """Return Holm-corrected p-values, or the reason why there are none."""
    needed = clusters_needed(len(differences))
    if differences and clusters < needed:
        comparisons = "1 comparison needs" if len(differences) == 1 else f"{len(differences)} comparisons need"
        return {}, f"{comparisons} {count_text(needed, 'cluster')}, but the table has {clusters}"
    return dict(zip(differences, holm([pair.test.p for pair in differences.values()]), strict=True)), ""


def _build_sort_key(
    metrics: Sequence[Metric], estimates: Mapping[str, Mapping[str, Estimate]]
) -> Callable[[str], tuple[float, ...]]:
    """Return a key that sorts the best method first; unknown values come last."""
    ranking = [metric for metric in metrics if metric.headline][:_RANKING_METRICS]

    def sort_value(metric: Metric, value: float) -> float:
        return math.inf if math.isnan(value) else round(-value if metric.better == "higher" else value, 9)

    return lambda name: tuple(sort_value(metric, estimates[name][metric.name].value) for metric in ranking)


def build_leaderboard(
    rows: Sequence[ResultRow],
    *,
    recorded_rows: Sequence[ResultRow] = (),
    recorded_tables: Sequence[Table] = (),
    digest: str = "",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    policies: Sequence[ThresholdPolicy] | None = None,
    scorers: Sequence[Metric] | None = None,
    agent_runs: Sequence[AgentRun] = (),
    inspected_services: Mapping[str, InspectedServices] | None = None,
    reconstructions: Collection[str] = (),
) -> Leaderboard:
    """Build a leaderboard from result rows.

    Parameters
    ----------
    recorded_rows, recorded_tables
        Answers of detectors on recordings, and their tables.
    digest
        SHA-256 of the list of files of the dataset version.
    settings
        Settings of the evaluation, for the reader.
    seed
        Seed of tests that draw sign flips.
    policies
        Threshold policies in addition to `reference`; by default, from `choose_policies`.
    scorers
        Metrics from other distributions; by default all that are installed.
    agent_runs, inspected_services
        Runs of agents whose answers are among the rows, and the services that they inspected.
    reconstructions
        Methods whose papers do not define them completely.
    """
    if not rows and not recorded_rows:
        raise ValueError("a leaderboard needs at least one row")
    policies = choose_policies([]) if policies is None else policies
    scores = score_episodes(rows, policies, scorers)
    rows = scores.judged
    tested = {row.episode: row.truth for row in rows if row.protocol != "calibration"}
    first = next(iter((*rows, *recorded_rows)))
    faulty = [truth for truth in tested.values() if truth.faulty]
    return Leaderboard(
        dataset=first.dataset,
        version=first.version,
        digest=digest,
        split=first.split,
        quick=any(truth.profile == "quick" for truth in tested.values()),
        counts=_count_verdicts(tested.values()),
        profiles=dict(Counter(truth.profile for truth in tested.values())),
        tables=(*recorded_tables, *build_tables(scores, seed, reconstructions)),
        strata=build_strata(scores),
        failures=tuple(_list_failures((*recorded_rows, *rows))),
        early_alarms=_count_early_alarms(rows),
        settings=dict(settings or {}) | {"test_seed": seed, "threshold_policies": [policy.name for policy in policies]},
        code=first.code,
        libraries=json.loads(first.libraries) if first.libraries else {},
        method_codes={
            row.baseline: row.method_code for row in sorted((*recorded_rows, *rows), key=lambda row: row.baseline)
        },
        curves=build_curves(scores),
        thresholds=_list_thresholds(scores),
        misses=tuple(_list_misses(scores)),
        agents=agent_lines(scores, agent_runs, inspected_services or {}, seed),
        several_causes=sum(is_headline(truth) and len(truth.causes) > 1 for truth in tested.values()),
        reference_s=_find_range_s((truth.reference_end_ns - truth.view_start_ns) for truth in tested.values()),
        seen_s=_find_range_s(truth.view_end_ns - truth.onset_ns for truth in faulty if truth.onset_ns is not None),
        unscored=_count_unscored(faulty, {row.task for row in rows}),
    )


def _find_range_s(durations_ns: Iterable[int]) -> tuple[float, float]:
    seconds = [duration / SECOND_NS for duration in durations_ns]
    return (min(seconds), max(seconds)) if seconds else (math.nan, math.nan)


def _count_verdicts(truths: Iterable[Truth]) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys((*(v for v in VERDICTS if v != UNNOTICED), "no fault"), 0)
    for truth in truths:
        name = truth.verdict if truth.faulty else "no fault"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _count_unscored(faulty: Sequence[Truth], tasks: set[str]) -> dict[str, int]:
    """Count the fault episodes that are excluded from the scores of a task, by reason."""
    reasons = {
        "onset unknown: excluded from event metrics and the protocol oracle": sum(
            truth.onset_ns is None for truth in faulty
        )
    }
    if "rca" in tasks:
        reasons = {"root cause: level or type unknown": sum(not truth.diagnoses for truth in faulty)} | reasons
    if "localization" in tasks:
        count = sum(not truth.causes for truth in faulty)
        reasons = {"localization: no root cause among the candidates": count} | reasons
    return {reason: count for reason, count in reasons.items() if count}


def _list_thresholds(scores: EpisodeScores) -> dict[str, dict[str, dict[str, float]]]:
    thresholds: dict[str, dict[str, dict[str, float]]] = {}
    for policy, by_model in scores.thresholds.items():
        by_name = thresholds.setdefault(policy, {})
        for (baseline, seed, fold), threshold in by_model.items():
            by_name.setdefault(baseline, {})[f"{fold}/{seed}"] = threshold
    return thresholds


def _list_misses(scores: EpisodeScores) -> Iterable[Misses]:
    for protocol in ("detected", "oracle"):
        for baseline, cases in sorted(scores.list_scored(Setting("localization", protocol)).items()):
            headline = [case for _, case in sorted(cases.items()) if is_headline(case.truth)]
            if headline and scores.groups[baseline] == TELEMETRY:
                yield _count_misses(baseline, protocol, headline)


def _count_misses(baseline: str, protocol: str, cases: Sequence[ScoredCase]) -> Misses:
    """Classify the services that a localizer ranks first, and count their distances to the cause."""
    first = [first_rank(case) for case in cases]
    distances = ["none" if math.isnan(rank.hops) else f"{rank.hops:g}" for rank in first]
    return Misses(
        baseline=baseline,
        protocol=protocol,
        episodes=len(cases),
        **{kind: float(np.mean([rank.kinds[kind] for rank in first])) for kind in ANSWER_KINDS},
        hops=dict(sorted(Counter(distances).items())),
    )


def _list_failures(rows: Sequence[ResultRow]) -> Iterable[Failure]:
    for row in sorted(rows, key=lambda row: row.key):
        if row.status not in NO_FAILURES:
            yield Failure(**{field.name: getattr(row, field.name) for field in fields(Failure)})


def _count_early_alarms(rows: Sequence[ResultRow]) -> dict[str, int]:
    """Count fault episodes by whether the alarm passed to localizers came before or after the onset, or not at all."""
    times: dict[str, str] = {}
    for row in rows:
        # answers computed elsewhere got no alarm from this evaluation
        has_alarm = row.alarm_source is not None or row.given_alarm_ns is not None
        if has_alarm and row.task != "detection" and row.protocol == "detected" and row.truth.faulty:
            times[row.episode] = (
                "none" if row.given_alarm_ns is None else "before onset" if row.alarm_given_early else "after onset"
            )
    return dict(Counter(times.values()))
