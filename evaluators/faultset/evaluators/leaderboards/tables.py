"""Tables of baselines that were told and shown the same, on the same episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.leaderboards import detection as detecting
from faultset.evaluators.leaderboards import diagnosis
from faultset.evaluators.leaderboards import localization as locating
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, UNKNOWN, Entry, Metric, Table
from faultset.evaluators.leaderboards.scored_rows import Asked, ScoredRows
from faultset.evaluators.results.rows import ResultRow, Truth
from faultset.evaluators.statistics.comparison import PairedDifference, holm, paired_difference
from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.systems import prediction_interval

VERDICTS: tuple[str, ...] = (HEADLINE, "latent", "silent")
GROUPS = ("telemetry", "sli")
PROTOCOLS = ("detected", "oracle")
TASKS = ("detection", "localization", "rca")
Estimates = Mapping[str, Mapping[str, Estimate]]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Which rows a table is made of."""

    asked: Asked
    app: str
    verdict: str
    group: str
    seed: int
    faulty: frozenset[str]
    """Fault episodes that count."""
    healthy: frozenset[str]
    """No-fault episodes."""
    baselines: tuple[str, ...]


def tables_of(facts: ScoredRows, seed: int) -> list[Table]:
    """Make all tables: each application before all together, telemetry before methods that see client requests."""
    apps = sorted({truth.app for truth in facts.truths.values()})
    tables = []
    for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
        for group in GROUPS:
            for task in TASKS:
                for protocol in PROTOCOLS:
                    for verdict in VERDICTS:
                        part = _part(facts, (task, protocol), app, verdict, group, seed)
                        if part is not None:
                            tables.append(_MAKERS[task](facts, part))
    return tables


def group_of(row: ResultRow) -> str:
    """Methods that see the clients' requests are ranked among themselves: verdicts come from the same data."""
    return "sli" if "sli" in row.needs else "telemetry"


def _part(facts: ScoredRows, asked: Asked, app: str, verdict: str, group: str, seed: int) -> _Part | None:
    found = facts.rows.get(asked, {})
    first = {name: next(iter(episodes.values()))[0] for name, episodes in found.items()}
    baselines = tuple(name for name, row in first.items() if group_of(row) == group)
    if not baselines:
        return None
    scored = _scored(facts, asked, baselines)
    here = {e: facts.truths[e] for e in scored if app in (ALL_APPS, facts.truths[e].app)}
    faulty = frozenset(e for e, truth in here.items() if truth.faulty and _counts_as(truth, verdict))
    asked_calm = {e for name in baselines for e, rows in found[name].items() if not rows[0].truth.faulty}
    healthy = frozenset(e for e in asked_calm if app in (ALL_APPS, facts.truths[e].app))
    if not faulty and not (healthy and verdict == HEADLINE and asked[0] == "detection"):
        return None
    return _Part(
        asked=asked,
        app=app,
        verdict=verdict,
        group=group,
        seed=seed,
        faulty=faulty,
        healthy=healthy,
        baselines=baselines,
    )


def _scored(facts: ScoredRows, asked: Asked, baselines: Sequence[str]) -> set[str]:
    task, protocol = asked
    if task == "detection":
        return {e for name in baselines for e in facts.heard[name]}
    kept = facts.located[protocol] if task == "localization" else facts.diagnosed[protocol]
    return {e for name in baselines for e in kept[name]}


def _counts_as(truth: Truth, verdict: str) -> bool:
    return truth.verdict == verdict or (verdict == HEADLINE and truth.verdict not in VERDICTS)


def _detection(facts: ScoredRows, part: _Part) -> Table:
    def split(episodes: Mapping[str, detecting.Heard]) -> tuple[list[detecting.Heard], list[detecting.Heard]]:
        return (
            [one for e, one in sorted(episodes.items()) if e in part.faulty],
            [one for e, one in sorted(episodes.items()) if e in part.healthy],
        )

    metrics = detecting.DETECTION_METRICS
    estimates = {name: detecting.detection_estimates(*split(facts.heard[name]), part.seed) for name in part.baselines}
    for policy, by in facts.by_policy.items():
        own = detecting.policy_metrics(policy)
        metrics += own
        for name in part.baselines:
            estimates[name] |= (
                detecting.policy_estimates(policy, *split(by[name]), part.seed)
                if name in by
                else {metric.name: unknown("no threshold could be set from training episodes") for metric in own}
            )
    faulty, _ = split(facts.heard[part.baselines[0]])
    note = ""
    if not part.healthy:
        note = "There is no no-fault episode, so false alarms are unknown and always-yes would look perfect."
    elif not part.faulty:
        note = f"There is no {part.verdict} fault episode; only false alarms can be judged."
    return _table(facts, part, metrics, estimates, detecting.constant_answer_floor(faulty), note)


def _localization(facts: ScoredRows, part: _Part) -> Table:
    protocol = part.asked[1]
    own = facts.located.get("own", {}) if protocol == "detected" else {}
    estimates = {
        name: locating.localization_estimates(
            _only(facts.located[protocol][name], part.faulty),
            part.seed,
            own=own.get(name),
            calm=_only(facts.calm[part.asked][name], part.healthy),
        )
        for name in part.baselines
    }
    floor = locating.guessing_floor([facts.truths[episode] for episode in sorted(part.faulty)])
    return _table(facts, part, locating.LOCALIZATION_METRICS, estimates, floor, "")


def _diagnosis(facts: ScoredRows, part: _Part) -> Table:
    found = facts.diagnosed[part.asked[1]]
    estimates = {
        name: diagnosis.diagnosis_estimates(
            _only(found[name], part.faulty), _only(facts.calm[part.asked][name], part.healthy), part.seed
        )
        for name in part.baselines
    }
    floor = diagnosis.constant_floor(_only(found[part.baselines[0]], part.faulty))
    return _table(facts, part, diagnosis.DIAGNOSIS_METRICS, estimates, floor, "")


_MAKERS: Mapping[str, Callable[[ScoredRows, _Part], Table]] = {
    "detection": _detection,
    "localization": _localization,
    "rca": _diagnosis,
}


def _only(episodes: Mapping[str, object], chosen: Iterable[str]) -> list:
    wanted = frozenset(chosen)
    return [one for episode, one in sorted(episodes.items()) if episode in wanted]


def _table(
    facts: ScoredRows,
    part: _Part,
    metrics: tuple[Metric, ...],
    estimates: Estimates,
    floor: Mapping[str, Estimate],
    note: str,
) -> Table:
    episodes = part.faulty | part.healthy if part.asked[0] == "detection" else part.faulty
    rights = facts.right(part.asked)
    found = facts.rows[part.asked]
    kinds = {name: next(iter(found[name].values()))[0].kind for name in part.baselines}
    key = _sort_key(metrics, estimates)
    names = sorted(part.baselines, key=lambda name: (key(name), name))
    control = next((name for name in names if kinds[name] == "control"), None)
    against = {
        name: _compare(rights[name], rights[control], episodes, facts, part.seed)
        for name in names
        if control is not None and kinds[name] != "control"
    }
    adjusted = dict(zip(against, holm([pair.test.p for pair in against.values()]), strict=True))
    entries = []
    for name in names:
        own = [row for e in (*part.faulty, *part.healthy) for row in found[name].get(e, ())]
        place = 1 + sum(key(other)[0] < key(name)[0] for other in names)
        entries.append(
            Entry(
                baseline=name,
                kind=kinds[name],
                place=place,
                metrics=estimates[name],
                rows=len(own),
                failed=dict(Counter(row.status for row in own if row.status != "ok" and row.episode in episodes)),
                seconds=_median(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in own),
                fit_seconds=_median(row.fit_seconds for row in own),
                peak_bytes=_median(row.peak_bytes for row in own),
                seeds=len({row.seed for row in own}),
                seed_spread=facts.spread(part.asked, name, sorted(episodes)),
                against=against.get(name),
                adjusted_p=adjusted.get(name),
                across=_across(facts, rights[name], episodes) if part.app == ALL_APPS else None,
            )
        )
    unknown_verdicts = sum(facts.truths[e].verdict == UNKNOWN for e in part.faulty)
    if unknown_verdicts:
        note = f"{note} {unknown_verdicts} of the fault episodes have no verdict and count as headline.".strip()
    return Table(
        task=part.asked[0],
        protocol=part.asked[1],
        app=part.app,
        verdict=part.verdict,
        group=part.group,
        metrics=metrics,
        entries=tuple(entries),
        floor=floor,
        episodes=len(part.faulty),
        clusters=len({facts.truths[episode].cluster for episode in part.faulty}),
        no_fault_episodes=len(part.healthy),
        strongest_control=control,
        note=note,
    )


def _sort_key(metrics: tuple[Metric, ...], estimates: Estimates) -> Callable[[str], tuple[float, ...]]:
    """Best first by the first metrics in turn; unknown values last."""

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
    facts: ScoredRows,
    seed: int,
) -> PairedDifference:
    common = sorted(first.keys() & second.keys() & frozenset(episodes))
    return paired_difference(
        [first[e] for e in common], [second[e] for e in common], [facts.truths[e].cluster for e in common], seed
    )


def _across(facts: ScoredRows, right: Mapping[str, float], episodes: Iterable[str]) -> Estimate:
    by_app: dict[str, list[float]] = {}
    for episode in sorted(episodes):
        if episode in right:
            by_app.setdefault(facts.truths[episode].app, []).append(right[episode])
    return prediction_interval([float(np.mean(values)) for values in by_app.values()])


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else math.nan
