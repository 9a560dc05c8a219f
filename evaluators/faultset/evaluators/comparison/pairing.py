"""Compare each method of two evaluations with itself, on the episodes that it answered in both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from faultset.core.errors import UsageError
from faultset.evaluators.comparison.runs import Change, Run, RunFacts, find_changes, load_run
from faultset.evaluators.leaderboards.records import ALL_APPS, GIVEN_ALARMS, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting, is_scored, score_episodes
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.intervals import MINIMUM_FOR_TESTS, Estimate
from faultset.evaluators.scoring.metrics import Metric
from faultset.evaluators.scoring.paired_tests import PairedDifference, holm, paired_difference
from faultset.evaluators.scoring.registry import TASK_METRICS

if TYPE_CHECKING:
    from faultset.evaluators.evaluation import Evaluation


@dataclass(frozen=True, kw_only=True)
class PairedEntry:
    """A method in both runs, on the episodes that it answered in both."""

    baseline: str
    kind: str
    episodes: int
    clusters: int
    old: Mapping[str, float]
    """Metric -> mean in the old run."""
    new: Mapping[str, float]
    differences: Mapping[str, Estimate]
    """Metric -> new minus old, with the interval over clusters."""
    paired: PairedDifference
    """Tests of the first metric."""
    adjusted_p: float
    """Holm-corrected over the methods of the table."""
    better: tuple[str, ...]
    """Episodes in which the first metric rose."""
    worse: tuple[str, ...]
    same_answers: int
    """Number of episodes in which every seed gave the same answer in both runs."""
    old_seconds: float
    """Median processor time of an answer."""
    new_seconds: float

    @property
    def changed(self) -> bool:
        """Whether the score of any episode changed."""
        return bool(self.better or self.worse)


@dataclass(frozen=True, kw_only=True)
class PairedTable:
    """Methods with the same input in both runs, largest change first."""

    task: str
    protocol: str
    app: str
    measures: tuple[Metric, ...]
    entries: tuple[PairedEntry, ...]

    @property
    def title(self) -> str:
        """Task, input and application."""
        name = "root cause" if self.task == "rca" else self.task
        alarms = {**GIVEN_ALARMS, "own": "the method's own detector"}
        parts = [name] if self.task == "detection" else [name, f"given: {alarms[self.protocol]}"]
        return " · ".join([*parts, self.app])


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All differences between two runs."""

    old: RunFacts
    """Facts about the earlier run."""
    new: RunFacts
    """Facts about the later run."""
    changes: tuple[Change, ...]
    """Other differences, such as code and settings."""
    tables: tuple[PairedTable, ...]
    """A table for each task, protocol and application."""
    episodes: int
    """Number of compared episodes."""
    only_old_methods: tuple[str, ...]
    """Methods of the earlier run only."""
    only_new_methods: tuple[str, ...]
    """Methods of the later run only."""
    only_old_episodes: tuple[str, ...]
    """Episodes of the earlier run only."""
    only_new_episodes: tuple[str, ...]
    """Episodes of the later run only."""
    other_truth: tuple[str, ...]
    """Common episodes whose labels differ; they are not compared."""
    labels: Mapping[str, str]
    """Episode -> fault and targets."""


Values = Mapping[str, Mapping[str, float]]
"""Metric -> episode -> value."""
_COMPARED_FIELDS = ("fault", "targets", "causes", "candidates", "diagnoses", "verdict", "onset_ns")


def compare(old: Run | Evaluation | str | Path, new: Run | Evaluation | str | Path, *, seed: int = 0) -> Comparison:
    """Compare two evaluations on episodes in headline tables, and on no-fault episodes for detection.

    Parameters
    ----------
    old, new
        Folders with results, `results.parquet` files, or evaluations.
    seed
        Seed of tests that draw sign flips.

    Raises
    ------
    UsageError
        Both are the same folder, they have no method or no episode in common, or the labels of all common episodes
        differ.
    """
    old, new = load_run(old, "old"), load_run(new, "new")
    if old.folder.resolve() == new.folder.resolve():
        raise UsageError(f"the two runs must differ, but both are {old.folder}; name two folders with results")
    truths, old_truths = new.truths, old.truths
    common = truths.keys() & old_truths.keys()
    if not common:
        raise UsageError(
            f"{_describe(old)} and {_describe(new)} have no episode in common; compare runs on the same episodes"
        )
    if not {_get_setting(row) for row in old.rows} & {_get_setting(row) for row in new.rows}:
        raise UsageError("the two runs have no method with the same input in common; evaluate the same --baselines")
    differing = {e for e in common if _get_compared_fields(old_truths[e]) != _get_compared_fields(truths[e])}
    if differing == common:
        raise UsageError(
            f"the labels of all {len(common)} common episodes differ between the runs; compare runs on the same labels"
        )
    tables = _build_tables(old, new, common - differing, seed)
    methods = [{row.baseline for row in run.rows} for run in (old, new)]
    return Comparison(
        old=old.facts,
        new=new.facts,
        changes=find_changes(old, new),
        tables=tuple(tables),
        episodes=len(common - differing),
        only_old_methods=tuple(sorted(methods[0] - methods[1])),
        only_new_methods=tuple(sorted(methods[1] - methods[0])),
        only_old_episodes=tuple(sorted(old_truths.keys() - truths.keys())),
        only_new_episodes=tuple(sorted(truths.keys() - old_truths.keys())),
        other_truth=tuple(sorted(differing)),
        labels={e: truth.title for e, truth in sorted({**old_truths, **truths}.items())},
    )


def _describe(run: Run) -> str:
    facts = run.facts
    return f"{facts.folder} ({facts.dataset} {facts.version})"


def _get_setting(row: ResultRow) -> tuple[str, str, str]:
    return row.baseline, row.task, row.protocol


def _get_compared_fields(truth: Truth) -> tuple[Any, ...]:
    return tuple(getattr(truth, name) for name in _COMPARED_FIELDS)


def _build_tables(old: Run, new: Run, episodes: Iterable[str], seed: int) -> Iterable[PairedTable]:
    chosen = frozenset(episodes)
    scores = [score_episodes([row for row in run.rows if row.episode in chosen], one_rule=False) for run in (old, new)]
    apps = sorted({truth.app for truth in scores[1].truths.values()})
    common = scores[0].cases.keys() & scores[1].cases.keys()
    for setting in sorted(common, key=lambda setting: (setting.task, setting.protocol)):
        for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
            app_episodes = {e for e in chosen if app in (ALL_APPS, scores[1].truths[e].app)}
            table = _build_table(scores, setting, app, app_episodes, seed)
            if table is not None:
                yield table


def _build_table(
    scores: Sequence[EpisodeScores], setting: Setting, app: str, chosen: set[str], seed: int
) -> PairedTable | None:
    installed = [scorer for scorer in scores[1].scorers if scorer.task == setting.task and scorer.headline]
    metrics = (*TASK_METRICS[setting.task].compared, *installed)
    names = scores[0].cases[setting].keys() & scores[1].cases[setting].keys()
    candidates = [_build_entry(scores, setting, name, metrics, chosen, seed) for name in sorted(names)]
    entries = [entry for entry in candidates if entry is not None]
    if not entries:
        return None
    # a method without any difference still counts as a comparison
    p_values = [1.0 if not e.changed and e.clusters >= MINIMUM_FOR_TESTS else e.paired.test.p for e in entries]
    entries = [dataclasses.replace(entry, adjusted_p=p) for entry, p in zip(entries, holm(p_values), strict=True)]
    first = metrics[0].name
    entries.sort(key=lambda entry: (not entry.changed, -abs(entry.differences[first].value), entry.baseline))
    return PairedTable(task=setting.task, protocol=setting.protocol, app=app, measures=metrics, entries=tuple(entries))


def _build_entry(
    scores: Sequence[EpisodeScores], setting: Setting, name: str, metrics: Sequence[Metric], chosen: set[str], seed: int
) -> PairedEntry | None:
    before, after = (_compute_values(side, setting, name, metrics) for side in scores)
    first = metrics[0].name
    episodes = sorted(before[first].keys() & after[first].keys() & chosen)
    if not episodes:
        return None
    truths = scores[1].truths
    means: list[dict[str, float]] = [{}, {}]
    differences = {}
    for metric in metrics:
        common = [e for e in episodes if e in before[metric.name] and e in after[metric.name]]
        pair = [[values[metric.name][e] for e in common] for values in (before, after)]
        kinds = [truths[e].faulty for e in common] if metric.balanced else [True] * len(common)
        for side, numbers in enumerate(pair):
            means[side][metric.name] = _mean_of_kinds(numbers, kinds)
        clusters = [truths[e].cluster for e in common]
        differences[metric.name] = paired_difference(pair[1], pair[0], clusters, seed, strata=kinds).difference
    keys = [truths[e].cluster for e in episodes]
    strata = [truths[e].faulty for e in episodes] if metrics[0].balanced else None
    changes = {e: after[first][e] - before[first][e] for e in episodes}
    rows = [{e: case.rows for e, case in side.cases[setting][name].items()} for side in scores]
    return PairedEntry(
        baseline=name,
        kind=rows[1][episodes[0]][0].kind,
        episodes=len(episodes),
        clusters=len(set(keys)),
        old=means[0],
        new=means[1],
        differences=differences,
        paired=paired_difference(
            [after[first][e] for e in episodes], [before[first][e] for e in episodes], keys, seed, strata=strata
        ),
        adjusted_p=math.nan,
        better=tuple(e for e in episodes if changes[e] > 1e-9),
        worse=tuple(e for e in episodes if changes[e] < -1e-9),
        same_answers=sum(_get_scored_content(rows[0][e]) == _get_scored_content(rows[1][e]) for e in episodes),
        old_seconds=_compute_median_seconds(rows[0], episodes),
        new_seconds=_compute_median_seconds(rows[1], episodes),
    )


def _mean_of_kinds(values: Sequence[float], kinds: Sequence[bool]) -> float:
    """Average the means of the individual kinds of episodes; NaN without values."""
    groups = [[v for v, kind in zip(values, kinds, strict=True) if kind == other] for other in set(kinds)]
    return float(np.mean([np.mean(group) for group in groups])) if groups else math.nan


def _compute_values(scores: EpisodeScores, setting: Setting, name: str, metrics: Sequence[Metric]) -> Values:
    """Return the values of a method on headline episodes and on episodes without a fault."""
    compared = {
        e: case
        for e, case in scores.cases[setting].get(name, {}).items()
        if (is_headline(case.truth) and is_scored(case)) or not case.truth.faulty
    }
    return {
        metric.name: {
            e: value
            for e, case in compared.items()
            if metric.is_for(case.truth) and math.isfinite(value := case.value(metric))
        }
        for metric in metrics
    }


def _get_scored_content(rows: Sequence[ResultRow]) -> list[tuple[Any, ...]]:
    """Return the scored content of the answers of all seeds."""
    return [
        (
            row.seed,
            row.status,
            row.alarm_ns,
            tuple(row.ranking.items()),
            row.answer.get("flags"),
            row.answer.get("system_level"),
            row.answer.get("fault_type"),
        )
        for row in rows
    ]


def _compute_median_seconds(rows: Mapping[str, Sequence[ResultRow]], episodes: Iterable[str]) -> float:
    seconds = [row.cpu_seconds for e in episodes for row in rows[e] if row.cpu_seconds is not None]
    return float(np.median(seconds)) if seconds else math.nan
