"""Scored cases: the answers of each method to each question on each episode.

Leaderboards, curves, heat maps, difficulties and comparisons group these cases and read the values of metrics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.records import ALL_APPS, TELEMETRY, Curve, CurvePoint, Stratum, is_headline
from faultset.evaluators.results.rows import ResultRow, amount_of
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.detection import build_policy_metrics
from faultset.evaluators.scoring.intervals import clustered_mean
from faultset.evaluators.scoring.metrics import Metric, ScoredCase
from faultset.evaluators.scoring.registry import TASK_METRICS, guard, load_scorers, score_correctness
from faultset.evaluators.scoring.thresholds import (
    ModelKey,
    Reference,
    ThresholdPolicy,
    apply_one_rule,
    compute_thresholds,
)

if TYPE_CHECKING:
    import pandas as pd

FRAME_COLUMNS = ("protocol", "app", "verdict", "baseline", "kind", "episode", "metric", "value")
KIND_ORDER = ("named", "method", "own", "agent", "external", "rule", "control")
GROUPS = (TELEMETRY, "sli", "alarm_location")
_MIN_CORRECT_SCORE = 0.5
"""Score above which an answer counts as right; scores can be fractions because of ties or several seeds."""


class Setting(NamedTuple):
    """The question that the methods of a table answer."""

    task: str
    protocol: str
    at_s: float = -1.0
    """Delay of the alarm or length of the evidence in seconds; -1 if neither applies."""


Cases = Mapping[str, Mapping[str, ScoredCase]]
"""Baseline -> episode -> case."""


class _Axis(NamedTuple):
    """The axis of a curve, and the protocols of its rows."""

    over: str
    task: str
    protocol: str
    """Protocol of the rows on the curve."""
    whole: str
    """Protocol to compare with: no delay, or the whole view."""


_AXES = (
    _Axis("delay", "localization", "delayed", "oracle"),
    _Axis("evidence", "detection", "evidence", "detected"),
    *(
        _Axis("evidence", task, protocol, whole)
        for task in ("localization", "rca")
        for protocol, whole in (("evidence", "oracle"), ("detected_evidence", "detected"))
    ),
)


@dataclass(frozen=True, kw_only=True)
class EpisodeScores:
    """The answers of all methods to all tested episodes."""

    truths: Mapping[str, Truth]
    kinds: Mapping[str, str]
    """Baseline -> kind."""
    groups: Mapping[str, str]
    """Baseline -> group in which it is ranked."""
    cases: Mapping[Setting, Cases]
    variants: Mapping[Setting, Mapping[str, Cases]] = field(default_factory=dict)
    """Setting -> baseline -> label of its non-default options -> episode -> case."""
    judged: Sequence[ResultRow] = field(repr=False)
    """All rows, with the alarms that follow from `threshold_rule`."""
    threshold_rule: str
    """Threshold policy behind detectors' alarms."""
    thresholds: Mapping[str, Mapping[ModelKey, float]]
    """Threshold policy -> detector -> threshold."""
    policies: tuple[str, ...]
    """Further threshold policies by which detections are scored."""
    scorers: tuple[Metric, ...] = ()
    """Installed metrics from other distributions."""

    def list_scored(self, setting: Setting) -> Cases:
        """Return the cases of a setting on which its task can be scored."""
        by_name = self.cases.get(setting, {})
        if setting.task == "detection":
            return by_name
        scored = {name: {e: case for e, case in cases.items() if is_scored(case)} for name, cases in by_name.items()}
        if setting.task != "rca":
            return scored
        return {name: cases if any(map(is_learnable, cases.values())) else {} for name, cases in scored.items()}

    def compute_correctness(self, setting: Setting) -> dict[str, dict[str, float]]:
        """Return the correctness of each baseline on each episode, by which methods are compared."""
        metric = TASK_METRICS[setting.task].correctness
        return {
            name: {e: case.value(metric) for e, case in cases.items()}
            for name, cases in self.list_scored(setting).items()
        }

    def compute_ranked_correctness(self, setting: Setting) -> dict[str, dict[str, float]]:
        """Return the values of `compute_correctness` for methods that see only telemetry."""
        return {
            name: values for name, values in self.compute_correctness(setting).items() if self.groups[name] == TELEMETRY
        }

    def frame(self, task: str) -> pd.DataFrame:
        """Return a row for each known value of a metric of a task, by method, protocol and episode."""
        import pandas as pd

        metrics = [metric for metric in self.list_metrics(task) if metric.of_case or metric.compute]
        lines = [
            (setting.protocol, case.truth.app, case.truth.verdict, name, self.kinds[name], e, metric.name, value)
            for setting, by_name in self.cases.items()
            if setting.task == task and setting.at_s < 0
            for name, cases in by_name.items()
            for e, case in cases.items()
            if not case.truth.faulty or is_scored(case) or task == "detection"
            for metric in metrics
            if metric.is_for(case.truth) and not math.isnan(value := case.value(metric))
        ]
        return pd.DataFrame(lines, columns=list(FRAME_COLUMNS))

    def compute_seed_deviation(self, setting: Setting, baseline: str, episodes: Iterable[str]) -> float | None:
        """Return the standard deviation of the score over seeds; None for a single seed."""
        seeds: dict[int, list[float]] = defaultdict(list)
        cases = self.cases[setting][baseline]
        for episode in episodes:
            rows = cases[episode].rows if episode in cases else ()
            if len(rows) < 2:
                return None
            for row in rows:
                seeds[row.seed].append(score_correctness(row))
        return float(np.std([np.mean(values) for values in seeds.values()], ddof=1)) if len(seeds) > 1 else None

    def list_metrics(self, task: str, *, by_policy: bool = False) -> tuple[Metric, ...]:
        """Return the built-in metrics of a task, on request also by each threshold policy, and installed metrics."""
        policies = self.policies if by_policy and task == "detection" else ()
        of_policies = (metric for policy in policies for metric in build_policy_metrics(policy))
        installed = (scorer for scorer in self.scorers if scorer.task == task)
        return (*TASK_METRICS[task].metrics, *of_policies, *installed)

    def sort_methods(self, names: Iterable[str]) -> list[str]:
        """Sort names by kind, controls last, then by name."""
        return sorted(names, key=lambda name: (kind_rank(self.kinds[name]), name))

    def is_control(self, name: str) -> bool:
        return self.kinds[name] == "control"


def kind_rank(kind: str) -> int:
    """Return the position of a kind of method in lists."""
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)


def group_of(row: ResultRow) -> str:
    """Return the group in which a method is ranked; methods that see more than telemetry have their own groups.

    "sli" is for methods that see the requests of clients, because verdicts are computed from the same data.
    "alarm_location" is for methods that get the service of the alarm.
    """
    return next((group for group in GROUPS[1:] if group in row.needs), TELEMETRY)


def is_scored(case: ScoredCase) -> bool:
    """Return whether a fault episode can be scored for a method.

    Its truth must suffice, and a method that learns from labels must have had training labels.
    """
    row = case.rows[0]
    return _is_scorable(row) and (row.task != "rca" or "labels" not in row.needs or row.majority_label is not None)


def is_learnable(case: ScoredCase) -> bool:
    """Return whether the training labels contain the right diagnosis; true for methods that do not use labels."""
    row = case.rows[0]
    return "labels" not in row.needs or row.class_trained is not False


def _is_scorable(row: ResultRow) -> bool:
    return row.truth.faulty and TASK_METRICS[row.task].is_scorable(row.truth)


def score_episodes(
    rows: Sequence[ResultRow],
    policies: Sequence[ThresholdPolicy] = (),
    scorers: Sequence[Metric] | None = None,
    *,
    one_rule: bool = True,
) -> EpisodeScores:
    """Group the answers to tested episodes; metrics are computed when they are read.

    Localizers are scored on fault episodes whose causes are candidates. Diagnosers are scored if level and type are
    known; if they learn from labels, they also need training labels. In no-fault episodes an empty answer is right.

    `policies`: threshold policies in addition to `reference`.
    `scorers`: metrics from other distributions; by default all that are installed.
    `one_rule`: whether one rule sets the thresholds of all detectors, see `apply_one_rule`. Otherwise each keeps its
    own.
    """
    own_rows: Mapping[str, Sequence[ResultRow]] = {}
    rule = Reference().name
    if one_rule:
        rows, own_rows, rule = apply_one_rule(rows, policies)
    tested = [row for row in rows if row.protocol != "calibration"]
    cases: dict[Setting, dict[str, dict[str, ScoredCase]]] = defaultdict(lambda: defaultdict(dict))
    for (task, protocol, baseline, at_s, episode), case in _group_cases(tested):
        cases[Setting(task, protocol, at_s)][baseline][episode] = case
    variants = _separate_variants(cases)
    thresholds = compute_thresholds(rows, policies)
    linked = _link_policies(cases.get(Setting("detection", "detected"), {}), thresholds, rule, own_rows)
    for baseline, own in cases.get(Setting("localization", "own"), {}).items():
        for episode, case in cases.get(Setting("localization", "detected"), {}).get(baseline, {}).items():
            case.at_own_alarm = own.get(episode)
    scores = EpisodeScores(
        truths={row.episode: row.truth for row in tested},
        kinds={row.baseline: row.kind for row in rows},
        groups={row.baseline: group_of(row) for row in rows},
        cases=cases,
        variants=variants,
        judged=rows,
        threshold_rule=rule,
        thresholds=thresholds,
        policies=linked,
        scorers=guard(load_scorers() if scorers is None else scorers),
    )
    _link_budgets(scores)
    return scores


def _group_cases(rows: Iterable[ResultRow]) -> Iterable[tuple[tuple[str, str, str, float, str], ScoredCase]]:
    """Yield the cases of rows, with all seeds of an answer in one case."""
    groups: dict[tuple[str, str, str, float, str], list[ResultRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.key):
        at_s = amount_of(row.delay_s, row.evidence_s)
        groups[row.task, row.protocol, row.baseline, at_s, row.episode].append(row)
    return ((key, ScoredCase(rows=tuple(group))) for key, group in groups.items())


def find_variants(names: Collection[str]) -> dict[str, list[str]]:
    """Return the methods among names that were also run with other settings, each with its names `NAME[SETTING]`.

    >>> find_variants(["a", "a[k=2]", "b[k=2]", "c"])
    {'a': ['a[k=2]']}
    """
    variants: dict[str, list[str]] = {}
    for full_name in names:
        name, bracket, _ = full_name.partition("[")
        if bracket and name in names:
            variants.setdefault(name, []).append(full_name)
    return variants


def _separate_variants(cases: Mapping[Setting, dict[str, dict[str, ScoredCase]]]) -> dict[Setting, dict[str, Cases]]:
    """Separate methods called `NAME[SETTING]` from the cases if the method NAME was run too."""
    return {
        setting: {
            name: {full_name: by_name.pop(full_name) for full_name in full_names}
            for name, full_names in find_variants(by_name).items()
        }
        for setting, by_name in cases.items()
    }


def _link_policies(
    detectors: Cases,
    thresholds: Mapping[str, Mapping[ModelKey, float]],
    rule: str,
    own_rows: Mapping[str, Sequence[ResultRow]],
) -> tuple[str, ...]:
    """Link each case to its cases under other threshold policies, and return these policies."""
    policies = [name for name, by_model in thresholds.items() if by_model and name != rule]
    for policy in policies:
        _apply_policy(policy, thresholds[policy], detectors)
    for (_, _, baseline, _, episode), case in _group_cases(row for rows in own_rows.values() for row in rows):
        if baseline in detectors:
            detectors[baseline][episode].by_policy[Reference().name] = case
    return (*policies, *([Reference().name] if own_rows else []))


def _apply_policy(policy: str, thresholds: Mapping[ModelKey, float], detectors: Cases) -> None:
    """Add cases with the thresholds of a policy; detectors without such a threshold are left out."""
    for name, cases in detectors.items():
        by_episode = {
            e: tuple(thresholds.get((name, row.seed, row.fold), math.nan) for row in case.rows)
            for e, case in cases.items()
        }
        if all(math.isfinite(value) for values in by_episode.values() for value in values):
            for episode, case in cases.items():
                case.by_policy[policy] = ScoredCase(rows=case.rows, thresholds=by_episode[episode])


def _select_headline(scores: EpisodeScores, task: str, protocol: str) -> dict[str, dict[float, dict[str, ScoredCase]]]:
    """Return the cases of scorable headline episodes by baseline, seconds and episode."""
    by_name: dict[str, dict[float, dict[str, ScoredCase]]] = defaultdict(dict)
    for setting in sorted(setting for setting in scores.cases if setting[:2] == (task, protocol)):
        for name, cases in sorted(scores.cases[setting].items()):
            headline = {e: c for e, c in sorted(cases.items()) if is_headline(c.truth) and _is_scorable(c.rows[0])}
            if headline:
                by_name[name][setting.at_s] = headline
    return dict(sorted(by_name.items()))


def _link_budgets(scores: EpisodeScores) -> None:
    """Link cases with the whole view to cases with less evidence, and set `seen_s`."""
    for axis in _AXES:
        if axis.over != "evidence":
            continue
        wholes = scores.cases.get(Setting(axis.task, axis.whole), {})
        for setting, by_name in scores.cases.items():
            for name, cases in by_name.items() if setting[:2] == (axis.task, axis.protocol) else ():
                for episode in cases.keys() & wholes.get(name, {}).keys():
                    wholes[name][episode].by_budget[setting.at_s] = cases[episode]
        for case in (case for cases in wholes.values() for case in cases.values()):
            if case.by_budget and is_headline(case.truth) and _is_scorable(case.rows[0]):
                case.seen_s = _find_shortest_right_s(case.by_budget, TASK_METRICS[axis.task].correctness)


def _find_shortest_right_s(by_budget: Mapping[float, ScoredCase], right: Metric) -> float:
    """Return the end of the shortest view for which this and every longer view give correct answers.

    The end is in seconds after the onset, delay of the alarm included; infinite if there is no such view.
    """
    shortest_s = math.inf
    for budget_s in sorted(by_budget, reverse=True):
        if by_budget[budget_s].value(right) <= _MIN_CORRECT_SCORE:
            break
        shortest_s = _measure_seen_s(by_budget[budget_s].rows[0])
    return shortest_s


def _measure_seen_s(row: ResultRow) -> float:
    """Return the seconds from the onset to the end of the view of a method."""
    truth = row.truth
    assert truth.onset_ns is not None
    assert row.evidence_s is not None
    start_ns = truth.onset_ns if row.given_alarm_ns is None else row.given_alarm_ns
    end_ns = min(start_ns + round(row.evidence_s * SECOND_NS), truth.view_end_ns)
    return max(0.0, (end_ns - truth.onset_ns) / SECOND_NS)


def build_curves(scores: EpisodeScores) -> tuple[Curve, ...]:
    """Return a curve for each method, axis and application, and over all applications if there are several.

    Only headline episodes count. Later points have fewer episodes, because the view must be long enough. Each point
    also has the score on the same episodes with the alarm at the onset, or with the whole view.
    """
    apps = sorted({row.truth.app for row in scores.judged})
    curves = []
    for axis in _AXES:
        by_name = _select_headline(scores, axis.task, axis.protocol)
        wholes = _select_headline(scores, axis.task, axis.whole)
        for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
            for baseline, by_seconds in by_name.items():
                at_onset = by_seconds.get(0.0, {}) if axis.over == "delay" else {}
                whole = wholes.get(baseline, {}).get(-1.0, at_onset)
                points = [
                    _build_point(at_s, chosen, whole, TASK_METRICS[axis.task].correctness)
                    for at_s, cases in by_seconds.items()
                    if (chosen := {e: case for e, case in cases.items() if app in (ALL_APPS, case.truth.app)})
                ]
                if points:
                    curves.append(
                        Curve(
                            over=axis.over,
                            task=axis.task,
                            protocol=axis.whole,
                            baseline=baseline,
                            kind=scores.kinds[baseline],
                            group=scores.groups[baseline],
                            app=app,
                            points=tuple(points),
                        )
                    )
    return tuple(curves)


def _build_point(
    at_s: float, cases: Mapping[str, ScoredCase], whole: Mapping[str, ScoredCase], right: Metric
) -> CurvePoint:
    others = [whole[e].value(right) for e in cases if e in whole]
    clusters = [case.truth.cluster for case in cases.values()]
    return CurvePoint(
        at_s=at_s,
        right=clustered_mean([case.value(right) for case in cases.values()], clusters),
        right_otherwise=float(np.mean(others)) if others else math.nan,
    )


TRIVIAL_RULE = "max-z"
ONE_MODALITY_RULES = ("loudest-log", "most-restarts", "series-stopped", "kubernetes-state", "last-change")

MEANINGS = {
    "trivial": f"{TRIVIAL_RULE} ranks the cause first",
    "one modality": f"not trivial, but one of {', '.join(ONE_MODALITY_RULES)} ranks the cause first",
    "hard": "none of these rules ranks the cause first",
    "unknown": f"{TRIVIAL_RULE} was not evaluated",
}


def build_strata(scores: EpisodeScores) -> tuple[Stratum, ...]:
    """Group headline fault episodes by difficulty, judged by answers given the true onset if there are any."""
    oracle, detected = (Setting("localization", protocol) for protocol in ("oracle", "detected"))
    correctness = scores.compute_ranked_correctness(oracle) or scores.compute_ranked_correctness(detected)
    ac1 = {
        name: {e: value for e, value in values.items() if is_headline(scores.truths[e])}
        for name, values in correctness.items()
    }
    if not any(ac1.values()):
        return ()
    members: dict[str, list[str]] = {name: [] for name in MEANINGS}
    for episode in sorted({episode for values in ac1.values() for episode in values}):
        members[_classify_difficulty(episode, ac1)].append(episode)
    return tuple(
        Stratum(
            name=name,
            meaning=MEANINGS[name],
            episodes=tuple(episodes),
            ac1={
                baseline: float(np.mean([values[e] for e in episodes if e in values]))
                for baseline, values in sorted(ac1.items())
                if any(e in values for e in episodes)
            },
        )
        for name, episodes in members.items()
        if episodes or name != "unknown"
    )


def _classify_difficulty(episode: str, ac1: dict[str, dict[str, float]]) -> str:
    solves = lambda rule: ac1.get(rule, {}).get(episode, 0.0) > 0.99  # noqa: E731
    if TRIVIAL_RULE not in ac1:
        return "unknown"
    if solves(TRIVIAL_RULE):
        return "trivial"
    if any(solves(rule) for rule in ONE_MODALITY_RULES):
        return "one modality"
    return "hard"
