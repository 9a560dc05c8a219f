"""Tables of baselines that were given the same information, on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, UNKNOWN, Entry, Table
from faultset.evaluators.leaderboards.scores import Cases, EpisodeScores, Setting, is_learnable, is_scored
from faultset.evaluators.results.rows import PROTOCOLS, TASKS, ResultRow
from faultset.evaluators.results.truth import UNFELT, Truth
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
from faultset.evaluators.statistics.intervals import Estimate, unknown

VERDICTS: tuple[str, ...] = (HEADLINE, "latent", "silent", UNFELT)
GROUPS = ("telemetry", "sli", "alarm_place")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Which rows a table is made of."""

    setting: Setting
    app: str
    verdict: str
    group: str
    seed: int
    faulty: frozenset[str]
    """Fault episodes that count."""
    healthy: frozenset[str]
    """No-fault episodes."""
    baselines: tuple[str, ...]


def tables_of(scores: EpisodeScores, seed: int) -> list[Table]:
    """Make all tables: each application before all together, telemetry before methods that see client requests."""
    apps = sorted({truth.app for truth in scores.truths.values()})
    tables = []
    shown = [*apps, ALL_APPS] if len(apps) > 1 else apps
    for app, group, task, protocol, verdict in product(shown, GROUPS, TASKS, PROTOCOLS, VERDICTS):
        part = _part(scores, Setting(task, protocol), app, verdict, group, seed)
        if part is not None:
            table = _table(scores, part)
            tables.append(_with_prediction(table, tables) if app == ALL_APPS else table)
    return tables


def _with_prediction(pooled: Table, tables: Sequence[Table]) -> Table:
    """Say of each method what its first metric would be on one more application, by those that have a table."""
    key = (pooled.task, pooled.protocol, pooled.verdict, pooled.group)
    ranked_by = pooled.metrics[0].name
    values: dict[str, list[float]] = {}
    for table in tables:
        if (table.task, table.protocol, table.verdict, table.group) == key:
            for entry in table.entries:
                values.setdefault(entry.baseline, []).append(entry.metrics[ranked_by].value)
    entries = tuple(replace(entry, across=prediction_interval(values[entry.baseline])) for entry in pooled.entries)
    return replace(pooled, entries=entries)


def group_of(row: ResultRow) -> str:
    """Return in which group a method is ranked: apart where it is given more than the telemetry of all others.

    "sli" is for methods that see the clients' requests, because verdicts use the same data, "alarm_place" for those
    that are told where the alarm was seen.
    """
    return next((group for group in GROUPS[1:] if group in row.needs), GROUPS[0])


def _part(scores: EpisodeScores, setting: Setting, app: str, verdict: str, group: str, seed: int) -> _Part | None:
    found = scores.cases.get(setting, {})
    first = {name: next(iter(cases.values())).rows[0] for name, cases in found.items()}
    baselines = tuple(name for name, row in first.items() if group_of(row) == group)
    if not baselines:
        return None
    episodes = {e for name in baselines for e in found[name]}
    # also where nothing could be learned: the table says so
    poses = TASK_METRICS[setting.task].poses if setting.task != "detection" else lambda truth: True
    here = {e: truth for e in episodes if app in (ALL_APPS, (truth := scores.truths[e]).app)}
    faulty = frozenset(e for e, truth in here.items() if truth.faulty and poses(truth) and _counts_as(truth, verdict))
    healthy = frozenset(e for e, truth in here.items() if not truth.faulty)
    if not faulty and not (healthy and verdict == HEADLINE and setting.task == "detection"):
        return None
    return _Part(
        setting=setting,
        app=app,
        verdict=verdict,
        group=group,
        seed=seed,
        faulty=faulty,
        healthy=healthy,
        baselines=baselines,
    )


def _counts_as(truth: Truth, verdict: str) -> bool:
    return truth.verdict == verdict or (verdict == HEADLINE and truth.verdict not in VERDICTS)


def _estimates(
    scores: EpisodeScores, part: _Part, metrics: Sequence[Metric], cases: Mapping[str, ScoredCase]
) -> dict[str, Estimate]:
    """Compute every metric of one method, on fault episodes before those without a fault."""
    faulty, healthy = ([cases[e] for e in sorted(half) if e in cases] for half in (part.faulty, part.healthy))
    if part.setting.task == "rca":
        faulty = [case for case in faulty if is_scored(case)]
    estimates = {metric.name: metric.estimate([*faulty, *healthy]) for metric in metrics}
    if part.setting.task == "rca" and not any(is_learnable(case) for case in faulty):
        unlearned = unknown(NOTHING_TO_LEARN_FROM)
        estimates |= {metric.name: unlearned for metric in metrics if metric.episodes == "fault"}
    return estimates


def _floor(part: _Part, metrics: Sequence[Metric], found: Cases) -> dict[str, Estimate]:
    """Return what guessing scores on the episodes of a table."""
    cases: dict[str, ScoredCase] = {}
    for name in part.baselines:
        for episode in sorted((part.faulty | part.healthy) & found[name].keys()):
            if part.setting.task != "rca" or is_scored(found[name][episode]):
                cases.setdefault(episode, found[name][episode])
    if part.setting.task == "rca" and not any(is_learnable(case) for case in cases.values()):
        cases = {}
    guesses = {metric.name: metric.estimate_guess([cases[e] for e in sorted(cases)]) for metric in metrics}
    return {name: guess for name, guess in guesses.items() if guess is not None}


def _note(scores: EpisodeScores, part: _Part, scored: Collection[str]) -> str:
    notes = []
    if part.setting.task == "detection" and not part.healthy:
        notes.append("There is no no-fault episode, so false alarms are unknown and always-yes would look perfect.")
    elif part.setting.task == "detection" and not part.faulty:
        notes.append(f"There is no {part.verdict} fault episode; only false alarms can be judged.")
    unlearned = [name for name in scores.ordered(part.baselines) if name not in scored]
    if part.setting.task == "rca" and unlearned:
        notes.append(f"{NOTHING_TO_LEARN_FROM.capitalize()}, from which {', '.join(unlearned)} learn.")
    unknown_verdicts = sum(scores.truths[e].verdict == UNKNOWN for e in part.faulty)
    if unknown_verdicts:
        notes.append(f"{unknown_verdicts} of the fault episodes have no verdict and count as headline.")
    return " ".join(notes)


def _table(scores: EpisodeScores, part: _Part) -> Table:
    task = part.setting.task
    found = scores.cases[part.setting]
    metrics = scores.metrics_of(task, by_policy=True)
    estimates = {name: _estimates(scores, part, metrics, found[name]) for name in part.baselines}
    episodes = part.faulty | part.healthy if task == "detection" else part.faulty
    right = scores.right(part.setting)
    scored = {name for name in part.baselines if episodes & right[name].keys()}
    if task == "rca":
        scored = {name for name in scored if any(is_learnable(found[name][e]) for e in episodes & right[name].keys())}
    kinds = {name: next(iter(found[name].values())).rows[0].kind for name in part.baselines}
    key = _sort_key(metrics, estimates)
    names = sorted(part.baselines, key=lambda name: (key(name), name))
    control = next((name for name in names if name in scored and kinds[name] == "control"), None)
    against = {
        name: _compare(right[name], right[control], episodes, scores, part)
        for name in names
        if name in scored and control is not None and kinds[name] != "control"
    }
    adjusted = dict(zip(against, holm([pair.test.p for pair in against.values()]), strict=True))
    clusters = len({scores.truths[episode].cluster for episode in episodes})
    needed = clusters_needed(len(against))
    no_p = ""
    if against and clusters < needed:
        adjusted = {}
        comparisons = "1 comparison needs" if len(against) == 1 else f"{len(against)} comparisons need"
        no_p = f"{comparisons} {needed} clusters, these are {clusters}"
    return Table(
        task=task,
        protocol=part.setting.protocol,
        app=part.app,
        verdict=part.verdict,
        group=part.group,
        metrics=metrics,
        entries=tuple(
            replace(
                _entry(scores, part, name, episodes),
                rank=1 + sum(key(other)[0] < key(name)[0] for other in names),
                metrics=estimates[name],
                against=against.get(name),
                adjusted_p=adjusted.get(name),
            )
            for name in names
        ),
        floor=_floor(part, metrics, found),
        episodes=len(part.faulty),
        clusters=len({scores.truths[episode].cluster for episode in part.faulty}),
        no_fault_episodes=len(part.healthy),
        strongest_control=control,
        note=_note(scores, part, scored),
        no_p=no_p,
        threshold_rule=scores.threshold_rule if task == "detection" else "",
    )


def _entry(scores: EpisodeScores, part: _Part, name: str, episodes: Collection[str]) -> Entry:
    """Return a method with what its answers cost."""
    cases = scores.cases[part.setting][name]
    rows = [row for e in sorted(part.faulty | part.healthy) if e in cases for row in cases[e].rows]
    first = next(iter(cases.values())).rows[0]
    return Entry(
        baseline=name,
        kind=first.kind,
        given=first.needs,
        rank=0,
        metrics={},
        rows=len(rows),
        failed=dict(Counter(row.status for row in rows if row.status != "ok" and row.episode in episodes)),
        seconds=_median(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in rows),
        fit_seconds=_median(row.fit_seconds for row in rows),
        peak_bytes=_median(row.peak_bytes for row in rows),
        seeds=len({row.seed for row in rows}),
        seed_spread=scores.spread(part.setting, name, sorted(episodes)),
    )


def _sort_key(
    metrics: Sequence[Metric], estimates: Mapping[str, Mapping[str, Estimate]]
) -> Callable[[str], tuple[float, ...]]:
    """Return a key that sorts the best first, by the first metrics in turn; unknown values come last."""

    def key(name: str) -> tuple[float, ...]:
        values = []
        for metric in metrics[:4]:
            value = estimates[name][metric.name].value
            if math.isnan(value):
                values.append(math.inf)
            else:
                values.append(round(-value if metric.better == "higher" else value, 9))
        return tuple(values)

    return key


def _compare(
    first: Mapping[str, float],
    second: Mapping[str, float],
    episodes: Iterable[str],
    scores: EpisodeScores,
    part: _Part,
) -> PairedDifference:
    """Compare what the table ranks by: balanced accuracy counts fault and no-fault episodes the same."""
    common = sorted(first.keys() & second.keys() & frozenset(episodes))
    truths = [scores.truths[e] for e in common]
    return paired_difference(
        [first[e] for e in common],
        [second[e] for e in common],
        [truth.cluster for truth in truths],
        part.seed,
        strata=[truth.faulty for truth in truths] if TASK_METRICS[part.setting.task].right.balanced else None,
    )


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else math.nan
