"""Tables of baselines that were given the same information, on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from faultset.evaluators.leaderboards import detection as detecting
from faultset.evaluators.leaderboards import diagnosis
from faultset.evaluators.leaderboards import localization as locating
from faultset.evaluators.leaderboards.episode_scores import EpisodeScores, Setting
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, UNKNOWN, Entry, Table
from faultset.evaluators.results.rows import PROTOCOLS, TASKS, ResultRow
from faultset.evaluators.results.truth import UNFELT, Truth
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scorers.values import Estimates, estimate, sort_key
from faultset.evaluators.scorers.values import floor as scorer_floor
from faultset.evaluators.statistics.comparison import PairedDifference, clusters_needed, holm, paired_difference
from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.systems import prediction_interval

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
            table = _MAKERS[task](scores, part)
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
    found = scores.rows.get(setting, {})
    first = {name: next(iter(episodes.values()))[0] for name, episodes in found.items()}
    baselines = tuple(name for name, row in first.items() if group_of(row) == group)
    if not baselines:
        return None
    scored = _scored(scores, setting, baselines)
    here = {e: scores.truths[e] for e in scored if app in (ALL_APPS, scores.truths[e].app)}
    faulty = frozenset(e for e, truth in here.items() if truth.faulty and _counts_as(truth, verdict))
    healthy_episodes = {e for name in baselines for e, rows in found[name].items() if not rows[0].truth.faulty}
    healthy = frozenset(e for e in healthy_episodes if app in (ALL_APPS, scores.truths[e].app))
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


def _scored(scores: EpisodeScores, setting: Setting, baselines: Sequence[str]) -> set[str]:
    task, protocol = setting
    if task == "detection":
        return {e for name in baselines for e in scores.detections[name]}
    if task == "localization":
        return {e for name in baselines for e in scores.localizations[protocol][name]}
    # also where nothing could be learned: the table says so
    return {e for name in baselines for e in scores.rows[setting][name] if scores.truths[e].diagnoses}


def _counts_as(truth: Truth, verdict: str) -> bool:
    return truth.verdict == verdict or (verdict == HEADLINE and truth.verdict not in VERDICTS)


def _detection(scores: EpisodeScores, part: _Part) -> Table:
    def split(
        episodes: Mapping[str, detecting.DetectionFacts],
    ) -> tuple[list[detecting.DetectionFacts], list[detecting.DetectionFacts]]:
        return (
            [one for e, one in sorted(episodes.items()) if e in part.faulty],
            [one for e, one in sorted(episodes.items()) if e in part.healthy],
        )

    metrics = detecting.DETECTION_METRICS
    estimates = {
        name: detecting.detection_estimates(*split(scores.detections[name]), _times(scores, part, name))
        for name in part.baselines
    }
    for policy, by in scores.detections_by_policy.items():
        own = detecting.policy_metrics(policy)
        metrics += own
        for name in part.baselines:
            estimates[name] |= (
                detecting.policy_estimates(policy, *split(by[name]))
                if name in by
                else {metric.name: unknown(f"the policy {policy} sets no threshold for it") for metric in own}
            )
    faulty, _ = split(scores.detections[part.baselines[0]])
    note = ""
    if not part.healthy:
        note = "There is no no-fault episode, so false alarms are unknown and always-yes would look perfect."
    elif not part.faulty:
        note = f"There is no {part.verdict} fault episode; only false alarms can be judged."
    return _table(scores, part, metrics, estimates, detecting.constant_answer_floor(faulty), note)


def _localization(scores: EpisodeScores, part: _Part) -> Table:
    protocol = part.setting.protocol
    own = scores.localizations.get("own", {}) if protocol == "detected" else {}
    estimates = {
        name: locating.localization_estimates(
            _only(scores.localizations[protocol][name], part.faulty),
            own=own.get(name),
            times=_times(scores, part, name),
            abstentions=_only(scores.abstentions[part.setting][name], part.healthy),
        )
        for name in part.baselines
    }
    floor = locating.guessing_floor([scores.truths[episode] for episode in sorted(part.faulty)])
    return _table(scores, part, locating.LOCALIZATION_METRICS, estimates, floor, "")


def _diagnosis(scores: EpisodeScores, part: _Part) -> Table:
    found = scores.diagnoses[part.setting.protocol]
    estimates = {
        name: diagnosis.diagnosis_estimates(
            _only(found[name], part.faulty),
            _only(scores.abstentions[part.setting][name], part.healthy),
            _times(scores, part, name),
        )
        for name in part.baselines
    }
    floor = diagnosis.constant_floor(max((_only(found[name], part.faulty) for name in part.baselines), key=len))
    unlearned = [name for name in scores.ordered(part.baselines) if not _only(found[name], part.faulty)]
    note = (
        f"{diagnosis.NOTHING_TO_LEARN_FROM.capitalize()}, from which {', '.join(unlearned)} learn." if unlearned else ""
    )
    return _table(scores, part, diagnosis.DIAGNOSIS_METRICS, estimates, floor, note)


def _times(scores: EpisodeScores, part: _Part, name: str) -> Mapping[str, float] | None:
    return scores.times_to_be_right.get(part.setting, {}).get(name)


_MAKERS: Mapping[str, Callable[[EpisodeScores, _Part], Table]] = {
    "detection": _detection,
    "localization": _localization,
    "rca": _diagnosis,
}


def _only(episodes: Mapping[str, object], chosen: Iterable[str]) -> list:
    wanted = frozenset(chosen)
    return [one for episode, one in sorted(episodes.items()) if episode in wanted]


def _table(
    scores: EpisodeScores,
    part: _Part,
    metrics: tuple[Metric, ...],
    estimates: Estimates,
    floor: Mapping[str, Estimate],
    note: str,
) -> Table:
    episodes = part.faulty | part.healthy if part.setting.task == "detection" else part.faulty
    own = scores.scorers_of(part.setting.task)
    metrics = (*metrics, *own)
    answers = scores.rows[part.setting]
    correct = scores.correct(part.setting)
    scored = {name for name in part.baselines if episodes & correct[name].keys()}
    estimates = {
        name: {
            **found,
            **{
                m.name: estimate(m, answers[name], part.faulty | part.healthy)
                if name in scored
                else unknown(diagnosis.NOTHING_TO_LEARN_FROM)
                for m in own
            },
        }
        for name, found in estimates.items()
    }
    truths = [scores.truths[e] for e in sorted(part.faulty | part.healthy)]
    floor = {**floor, **{m.name: found for m in own if (found := scorer_floor(m, truths)) is not None}}
    found = scores.rows[part.setting]
    kinds = {name: next(iter(found[name].values()))[0].kind for name in part.baselines}
    key = sort_key(metrics, estimates)
    names = sorted(part.baselines, key=lambda name: (key(name), name))
    control = next((name for name in names if name in scored and kinds[name] == "control"), None)
    against = {
        name: _compare(correct[name], correct[control], episodes, scores, part)
        for name in names
        if name in scored and control is not None and kinds[name] != "control"
    }
    adjusted = dict(zip(against, holm([pair.test.p for pair in against.values()]), strict=True))
    clusters = len({scores.truths[episode].cluster for episode in episodes})
    needed = clusters_needed(len(against))
    no_p = ""
    if against and clusters < needed:
        adjusted = {}
        no_p = f"{len(against)} comparisons need {needed} clusters, these are {clusters}"
    entries = []
    for name in names:
        own = [row for e in (*part.faulty, *part.healthy) for row in found[name].get(e, ())]
        rank = 1 + sum(key(other)[0] < key(name)[0] for other in names)
        entries.append(
            Entry(
                baseline=name,
                kind=kinds[name],
                given=next(iter(found[name].values()))[0].needs,
                rank=rank,
                metrics=estimates[name],
                rows=len(own),
                failed=dict(Counter(row.status for row in own if row.status != "ok" and row.episode in episodes)),
                seconds=_median(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in own),
                fit_seconds=_median(row.fit_seconds for row in own),
                peak_bytes=_median(row.peak_bytes for row in own),
                seeds=len({row.seed for row in own}),
                seed_spread=scores.spread(part.setting, name, sorted(episodes)),
                against=against.get(name),
                adjusted_p=adjusted.get(name),
            )
        )
    unknown_verdicts = sum(scores.truths[e].verdict == UNKNOWN for e in part.faulty)
    if unknown_verdicts:
        note = f"{note} {unknown_verdicts} of the fault episodes have no verdict and count as headline.".strip()
    return Table(
        task=part.setting.task,
        protocol=part.setting.protocol,
        app=part.app,
        verdict=part.verdict,
        group=part.group,
        metrics=metrics,
        entries=tuple(entries),
        floor=floor,
        episodes=len(part.faulty),
        clusters=len({scores.truths[episode].cluster for episode in part.faulty}),
        no_fault_episodes=len(part.healthy),
        strongest_control=control,
        note=note,
        no_p=no_p,
        threshold_rule=scores.threshold_rule if part.setting.task == "detection" else "",
    )


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
        strata=[truth.faulty for truth in truths] if part.setting.task == "detection" else None,
    )


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else math.nan
