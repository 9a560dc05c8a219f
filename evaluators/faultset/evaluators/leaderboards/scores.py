"""The table that scoring makes of rows: a case for each method, question and episode.

Leaderboards, curves, heat maps, difficulties and comparisons group these cases and read the values of metrics.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, CurvePoint, is_headline
from faultset.evaluators.leaderboards.trained_thresholds import ModelKey, by_one_rule, thresholds_of
from faultset.evaluators.results.rows import ResultRow, amount_of
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.detection import policy_metrics
from faultset.evaluators.scoring.metrics import Metric, ScoredCase
from faultset.evaluators.scoring.registry import TASK_METRICS, guard, registered_scorers, right_of
from faultset.evaluators.scoring.thresholds import Reference, ThresholdPolicy
from faultset.evaluators.statistics.intervals import clustered_mean

if TYPE_CHECKING:
    import pandas as pd

FRAME_COLUMNS = ("protocol", "app", "verdict", "baseline", "kind", "episode", "metric", "value")
KIND_ORDER = ("named", "method", "own", "agent", "external", "rule", "control")
_RIGHT = 0.5
"""Share from which on an episode counts as answered; ties and seeds make fractions."""


class Setting(NamedTuple):
    """The question that the methods of one table answer."""

    task: str
    protocol: str
    at_s: float = -1.0
    """Delay of the alarm or length of the evidence in seconds; -1 without one."""


Cases = Mapping[str, Mapping[str, ScoredCase]]
"""Baseline -> episode -> case."""
Values = Mapping[str, Mapping[str, float]]
"""Baseline -> episode -> value."""


class _Axis(NamedTuple):
    """What a curve is over, and where its rows are."""

    over: str
    task: str
    protocol: str
    """Of the rows of the curve."""
    beside: str
    """Protocol of the same episodes without the delay, or with the whole view."""


_AXES = (
    _Axis("delay", "localization", "delayed", "oracle"),
    _Axis("evidence", "detection", "evidence", "detected"),
    *(
        _Axis("evidence", task, protocol, beside)
        for task in ("localization", "rca")
        for protocol, beside in (("evidence", "oracle"), ("detected_evidence", "detected"))
    ),
)


@dataclass(frozen=True, kw_only=True)
class EpisodeScores:
    """Every method's answers about every tested episode."""

    truths: Mapping[str, Truth]
    kinds: Mapping[str, str]
    """Baseline -> kind."""
    cases: Mapping[Setting, Cases]
    judged: Sequence[ResultRow] = field(repr=False)
    """All rows, with the alarms that are scored."""
    threshold_rule: str
    """What sets the thresholds behind detectors' alarms."""
    thresholds: Mapping[str, Mapping[ModelKey, float]]
    """Threshold policy -> detector -> threshold."""
    policies: tuple[str, ...]
    """Other threshold policies that detections are scored by."""
    scorers: tuple[Metric, ...] = ()
    """Metrics of other distributions."""

    def scored(self, setting: Setting) -> Cases:
        """Return the cases of a setting that pose its task."""
        found = self.cases.get(setting, {})
        if setting.task == "detection":
            return found
        scored = {name: {e: case for e, case in cases.items() if is_scored(case)} for name, cases in found.items()}
        if setting.task != "rca":
            return scored
        return {name: cases if any(map(is_learnable, cases.values())) else {} for name, cases in scored.items()}

    def right(self, setting: Setting) -> dict[str, dict[str, float]]:
        """Return baseline -> episode -> how right it was, by the metric that methods are compared by."""
        return self.values(setting, TASK_METRICS[setting.task].right)

    def values(self, setting: Setting, metric: Metric) -> dict[str, dict[str, float]]:
        """Return baseline -> episode -> value of a metric, on the cases that pose its task."""
        return {
            name: {e: case.value(metric) for e, case in cases.items()} for name, cases in self.scored(setting).items()
        }

    def frame(self, task: str) -> pd.DataFrame:
        """Return one line for each method, protocol, episode and metric of a task that has a value there."""
        import pandas as pd

        metrics = [metric for metric in self.metrics_of(task) if metric.of_case or metric.compute]
        lines = [
            (setting.protocol, case.truth.app, case.truth.verdict, name, self.kinds[name], e, metric.name, value)
            for setting, by in self.cases.items()
            if setting.task == task and setting.at_s < 0
            for name, cases in by.items()
            for e, case in cases.items()
            if not case.truth.faulty or is_scored(case) or task == "detection"
            for metric in metrics
            if metric.is_for(case.truth) and not math.isnan(value := case.value(metric))
        ]
        return pd.DataFrame(lines, columns=list(FRAME_COLUMNS))

    def spread(self, setting: Setting, baseline: str, episodes: Iterable[str]) -> float | None:
        """Return the standard deviation over seeds of the same metric; None for a single seed."""
        seeds: dict[int, list[float]] = defaultdict(list)
        cases = self.cases[setting][baseline]
        for episode in episodes:
            rows = cases[episode].rows if episode in cases else ()
            if len(rows) < 2:
                return None
            for row in rows:
                seeds[row.seed].append(right_of(row))
        return float(np.std([np.mean(values) for values in seeds.values()], ddof=1)) if len(seeds) > 1 else None

    def metrics_of(self, task: str, *, by_policy: bool = False) -> tuple[Metric, ...]:
        """Return the metrics of a task: built-in ones, if chosen those of threshold policies, then installed ones."""
        policies = self.policies if by_policy and task == "detection" else ()
        own = (metric for policy in policies for metric in policy_metrics(policy))
        return (*TASK_METRICS[task].metrics, *own, *(scorer for scorer in self.scorers if scorer.task == task))

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Sort methods first, controls last, by name within a kind."""
        return sorted(names, key=lambda name: (kind_rank(self.kinds[name]), name))

    def is_control(self, name: str) -> bool:
        """Whether a method ignores the evidence or looks at one trivial sign of it."""
        return self.kinds[name] == "control"


def kind_rank(kind: str) -> int:
    """Return the place of a kind of method in lists."""
    return KIND_ORDER.index(kind) if kind in KIND_ORDER else len(KIND_ORDER)


def is_scored(case: ScoredCase) -> bool:
    """Return whether a fault episode poses the task, and a method that learns from labels was given one."""
    row = case.rows[0]
    return _poses(row) and (row.task != "rca" or "labels" not in row.needs or row.majority_label is not None)


def is_learnable(case: ScoredCase) -> bool:
    """Return whether a method could have learned the right diagnosis; true where it learns from no labels."""
    row = case.rows[0]
    return "labels" not in row.needs or row.class_trained is not False


def _poses(row: ResultRow) -> bool:
    return row.truth.faulty and TASK_METRICS[row.task].poses(row.truth)


def score_episodes(
    rows: Sequence[ResultRow],
    policies: Sequence[ThresholdPolicy] = (),
    scorers: Sequence[Metric] | None = None,
    *,
    one_rule: bool = True,
) -> EpisodeScores:
    """Put the answers about tested episodes together; metrics compute their values when they are read.

    A localizer's answers count on fault episodes whose causes are candidates, a diagnoser's where level and type are
    known and, if it learns from labels, where it was given any; on no-fault episodes it only counts whether anything
    was named.

    Parameters
    ----------
    policies
        Threshold policies other than `reference` by which detections are scored as well.
    scorers
        Metrics of other distributions; by default all that are installed.
    one_rule
        Set the thresholds of all detectors by one rule; see `by_one_rule`. Otherwise each keeps its own.
    """
    by_own: Mapping[str, Sequence[ResultRow]] = {}
    rule = Reference().name
    if one_rule:
        rows, by_own, rule = by_one_rule(rows, policies)
    cases: dict[Setting, dict[str, dict[str, ScoredCase]]] = defaultdict(lambda: defaultdict(dict))
    for (task, protocol, baseline, at_s, episode), case in _group(row for row in rows if row.protocol != "calibration"):
        cases[Setting(task, protocol, at_s)][baseline][episode] = case
    thresholds = thresholds_of(rows, policies)
    detectors = cases.get(Setting("detection", "detected"), {})
    shown = [name for name, found in thresholds.items() if found and name != rule]
    for policy in shown:
        _apply_policy(policy, thresholds[policy], detectors)
    if by_own:
        shown = [*shown, Reference().name]
        for (_, _, baseline, _, episode), case in _group(row for own in by_own.values() for row in own):
            detectors[baseline][episode].by_policy[Reference().name] = case
    for baseline, own in cases.get(Setting("localization", "own"), {}).items():
        for episode, case in cases.get(Setting("localization", "detected"), {}).get(baseline, {}).items():
            case.own = own.get(episode)
    scores = EpisodeScores(
        truths={row.episode: row.truth for row in rows if row.protocol != "calibration"},
        kinds={row.baseline: row.kind for row in rows},
        cases=cases,
        judged=rows,
        threshold_rule=rule,
        thresholds=thresholds,
        policies=tuple(shown),
        scorers=guard(registered_scorers() if scorers is None else scorers),
    )
    _set_times(scores)
    return scores


def _group(rows: Iterable[ResultRow]) -> Iterable[tuple[tuple[str, str, str, float, str], ScoredCase]]:
    """Put the seeds of one answer together."""
    groups: dict[tuple[str, str, str, float, str], list[ResultRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.key):
        at_s = amount_of(row.delay_s, row.evidence_s)
        groups[row.task, row.protocol, row.baseline, at_s, row.episode].append(row)
    return ((key, ScoredCase(rows=tuple(group))) for key, group in groups.items())


def _apply_policy(policy: str, thresholds: Mapping[ModelKey, float], detectors: Cases) -> None:
    """Score detectors with the thresholds of a policy as well; those without a threshold are left out."""
    for name, cases in detectors.items():
        own = {
            e: tuple(thresholds.get((name, row.seed, row.fold), math.nan) for row in case.rows)
            for e, case in cases.items()
        }
        if all(math.isfinite(value) for values in own.values() for value in values):
            for episode, case in cases.items():
                case.by_policy[policy] = ScoredCase(rows=case.rows, thresholds=own[episode])


def _headline(scores: EpisodeScores, task: str, protocol: str) -> dict[str, dict[float, dict[str, ScoredCase]]]:
    """Return baseline -> seconds -> headline episode that poses the task -> case."""
    by: dict[str, dict[float, dict[str, ScoredCase]]] = defaultdict(dict)
    settings = sorted(setting for setting in scores.cases if setting[:2] == (task, protocol))
    for setting in settings:
        for name, cases in sorted(scores.cases[setting].items()):
            found = {e: c for e, c in sorted(cases.items()) if is_headline(c.truth) and _poses(c.rows[0])}
            if found:
                by[name][setting.at_s] = found
    return dict(sorted(by.items()))


def _set_times(scores: EpisodeScores) -> None:
    """Set the seconds after the onset up to which an episode had to be seen, over the budgets of evidence tried.

    It is the end of the shortest view from which on the answer is right, and right with every larger budget that was
    tried; where there is none, the time is infinite. After an alarm it includes the time that the alarm took.
    """
    for axis in _AXES:
        right = TASK_METRICS[axis.task].right
        for baseline, by in _headline(scores, axis.task, axis.protocol).items() if axis.over == "evidence" else ():
            times: dict[str, float] = {}
            wrong: set[str] = set()
            for at in sorted(by, reverse=True):
                for episode, case in by[at].items():
                    if case.value(right) > _RIGHT and episode not in wrong:
                        times[episode] = _seen_s(case.rows[0])
                    else:
                        wrong.add(episode)
                        times.setdefault(episode, math.inf)
            whole = scores.cases.get(Setting(axis.task, axis.beside), {}).get(baseline, {})
            for episode, seconds in times.items():
                if episode in whole:
                    whole[episode].seen_s = seconds


def _seen_s(row: ResultRow) -> float:
    """Return the seconds from the onset to the end of the view that a method was shown."""
    truth = row.truth
    assert truth.onset_ns is not None
    assert row.evidence_s is not None
    since_ns = truth.onset_ns if row.given_alarm_ns is None else row.given_alarm_ns
    end_ns = min(since_ns + round(row.evidence_s * SECOND_NS), truth.view_end_ns)
    return max(0.0, (end_ns - truth.onset_ns) / SECOND_NS)


def curves_of(scores: EpisodeScores) -> tuple[Curve, ...]:
    """One curve for each method, axis and application, and over all applications where there are several.

    Only headline episodes count. Many seconds are left with fewer episodes, whose fault is seen for longer; beside
    every point stands what the same episodes give with the alarm at the onset, or with the whole view.
    """
    apps = sorted({row.truth.app for row in scores.judged})
    curves = []
    for axis in _AXES:
        by = _headline(scores, axis.task, axis.protocol)
        beside = _headline(scores, axis.task, axis.beside)
        for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
            for baseline, found in by.items():
                whole = beside.get(baseline, {}).get(-1.0, found.get(0.0, {}) if axis.over == "delay" else {})
                points = [
                    _point(at, here, whole, TASK_METRICS[axis.task].right)
                    for at in found
                    if (here := {e: case for e, case in found[at].items() if app in (ALL_APPS, case.truth.app)})
                ]
                if points:
                    curves.append(
                        Curve(
                            over=axis.over,
                            task=axis.task,
                            protocol=axis.beside,
                            baseline=baseline,
                            kind=scores.kinds[baseline],
                            app=app,
                            points=tuple(points),
                        )
                    )
    return tuple(curves)


def _point(at: float, here: Mapping[str, ScoredCase], whole: Mapping[str, ScoredCase], right: Metric) -> CurvePoint:
    others = [whole[e].value(right) for e in here if e in whole]
    return CurvePoint(
        at_s=at,
        right=clustered_mean([case.value(right) for case in here.values()], [c.truth.cluster for c in here.values()]),
        right_otherwise=float(np.mean(others)) if others else math.nan,
    )
