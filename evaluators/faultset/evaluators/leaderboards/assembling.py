"""From rows to a leaderboard."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from faultset.evaluators.leaderboards.detecting import (
    DETECTION_METRICS,
    constant_answer_floor,
    correctness,
    detection_estimates,
)
from faultset.evaluators.leaderboards.difficulty import strata_of
from faultset.evaluators.leaderboards.hearing import Heard, heard
from faultset.evaluators.leaderboards.locating import (
    LOCALIZATION_METRICS,
    Located,
    guessing_floor,
    localization_estimates,
    located,
)
from faultset.evaluators.leaderboards.records import (
    ALL_APPS,
    HEADLINE,
    Entry,
    Failure,
    Leaderboard,
    Metric,
    Table,
)
from faultset.evaluators.rows import ResultRow, Truth
from faultset.evaluators.statistics.comparison import PairedDifference, holm, paired_difference
from faultset.evaluators.statistics.estimates import Estimate

VERDICTS: tuple[str, ...] = (HEADLINE, "latent", "silent")
By = Mapping[str, Mapping[str, list[ResultRow]]]
"""Baseline -> episode -> rows, one for each seed."""


def leaderboard_of(
    rows: Sequence[ResultRow], *, digest: str = "", settings: Mapping[str, Any] | None = None, seed: int = 0
) -> Leaderboard:
    """Compute every table from rows.

    Parameters
    ----------
    digest
        SHA-256 of the dataset version's list of files.
    settings
        What the evaluation was asked for, to be shown to the reader.
    seed
        For resampling; equal seeds give equal intervals.
    """
    if not rows:
        raise ValueError("a leaderboard needs at least one row")
    truths = {row.episode: row.truth for row in rows}
    tables: list[Table] = []
    apps = sorted({truth.app for truth in truths.values()})
    for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
        here = [row for row in rows if app in (ALL_APPS, row.truth.app)]
        for group in ("telemetry", "sli"):
            shown = [row for row in here if group_of(row) == group]
            tables += _tables(shown, app, group, seed)
    first = rows[0]
    return Leaderboard(
        dataset=first.dataset,
        version=first.version,
        digest=digest,
        split=first.split,
        quick=any(truth.profile == "quick" for truth in truths.values()),
        counts=_counts(truths.values()),
        profiles=dict(Counter(truth.profile for truth in truths.values())),
        tables=tuple(tables),
        strata=strata_of(rows),
        failures=tuple(_failures(rows)),
        early_alarms=_early_alarms(rows),
        settings=dict(settings or {}) | {"bootstrap_seed": seed},
        code=first.code,
        libraries=json.loads(first.libraries) if first.libraries else {},
    )


def group_of(row: ResultRow) -> str:
    """Methods that see the clients' requests are ranked among themselves: verdicts come from the same data."""
    return "sli" if "sli" in row.needs else "telemetry"


def _counts(truths: Iterable[Truth]) -> dict[str, int]:
    counts: dict[str, int] = dict.fromkeys((*VERDICTS, "no fault"), 0)
    for truth in truths:
        name = truth.verdict if truth.faulty else "no fault"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _tables(rows: Sequence[ResultRow], app: str, group: str, seed: int) -> list[Table]:
    tables = []
    for task, protocol in sorted({(row.task, row.protocol) for row in rows}):
        if task == "rca" or protocol not in ("detected", "oracle"):
            continue
        chosen = [row for row in rows if (row.task, row.protocol) == (task, protocol)]
        if task == "localization":
            chosen = [row for row in chosen if row.truth.causes]
        make = _detection_table if task == "detection" else _localization_table
        for verdict in VERDICTS:
            kept = [row for row in chosen if not row.truth.faulty or row.truth.verdict == verdict]
            if any(row.truth.faulty for row in kept) or (verdict == HEADLINE and task == "detection"):
                tables.append(make(kept, protocol, app, verdict, group, seed))
    return tables


def _detection_table(rows: Sequence[ResultRow], protocol: str, app: str, verdict: str, group: str, seed: int) -> Table:
    by = _by(rows)
    facts = {name: {e: heard(found) for e, found in episodes.items()} for name, episodes in by.items()}
    estimates = {name: _detection(episodes.values(), seed) for name, episodes in facts.items()}
    rights = {name: correctness(episodes) for name, episodes in facts.items()}
    any_one = next(iter(facts.values()))
    faulty = [one for one in any_one.values() if one.truth.faulty]
    healthy = len(any_one) - len(faulty)
    spread = {name: _spread(by[name], _detection_of_seed) for name in by}
    return _table(
        rows,
        DETECTION_METRICS,
        estimates,
        rights,
        spread,
        floor=constant_answer_floor(faulty),
        about={"task": "detection", "protocol": protocol, "app": app, "verdict": verdict, "group": group},
        episodes=len(faulty),
        no_fault_episodes=healthy,
        note=_note(faulty=len(faulty), healthy=healthy, verdict=verdict),
        seed=seed,
    )


def _localization_table(
    rows: Sequence[ResultRow], protocol: str, app: str, verdict: str, group: str, seed: int
) -> Table:
    by = _by(rows)
    facts = {name: {e: located(found) for e, found in episodes.items()} for name, episodes in by.items()}
    estimates = {name: localization_estimates(list(eps.values()), seed) for name, eps in facts.items()}
    rights = {name: {e: one.ac1 for e, one in episodes.items()} for name, episodes in facts.items()}
    any_one: Mapping[str, Located] = next(iter(facts.values()))
    return _table(
        rows,
        LOCALIZATION_METRICS,
        estimates,
        rights,
        {name: _spread(by[name], _localization_of_seed) for name in by},
        floor=guessing_floor([one.truth for one in any_one.values()]),
        about={"task": "localization", "protocol": protocol, "app": app, "verdict": verdict, "group": group},
        episodes=len(any_one),
        no_fault_episodes=0,
        note="",
        seed=seed,
    )


def _table(
    rows: Sequence[ResultRow],
    metrics: tuple[Metric, ...],
    estimates: Mapping[str, Mapping[str, Estimate]],
    rights: Mapping[str, Mapping[str, float]],
    spread: Mapping[str, float | None],
    *,
    floor: Mapping[str, Estimate],
    about: Mapping[str, str],
    episodes: int,
    no_fault_episodes: int,
    note: str,
    seed: int,
) -> Table:
    kinds = {row.baseline: row.kind for row in rows}
    clusters = {row.episode: row.truth.cluster for row in rows}
    key = _sort_key(metrics, estimates)
    names = sorted(estimates, key=lambda name: (key(name), name))
    control = next((name for name in names if kinds[name] == "control"), None)
    against = {
        name: _compare(rights[name], rights[control], clusters, seed)
        for name in names
        if control is not None and kinds[name] != "control"
    }
    adjusted = dict(zip(against, holm([pair.test.p for pair in against.values()]), strict=True))
    entries = []
    for name in names:
        own = [row for row in rows if row.baseline == name]
        place = 1 + sum(key(other)[0] < key(name)[0] for other in names)
        entries.append(
            Entry(
                baseline=name,
                kind=kinds[name],
                place=place,
                metrics=estimates[name],
                rows=len(own),
                failed=dict(Counter(row.status for row in own if row.status != "ok")),
                seconds=_median(row.cpu_seconds if row.cpu_seconds is not None else row.seconds for row in own),
                fit_seconds=_median(row.fit_seconds for row in own),
                peak_bytes=_median(row.peak_bytes for row in own),
                seeds=len({row.seed for row in own}),
                seed_spread=spread[name],
                against=against.get(name),
                adjusted_p=adjusted.get(name),
            )
        )
    return Table(
        task=about["task"],
        protocol=about["protocol"],
        app=about["app"],
        verdict=about["verdict"],
        group=about["group"],
        metrics=metrics,
        entries=tuple(entries),
        floor=floor,
        episodes=episodes,
        clusters=len({cluster for episode, cluster in clusters.items() if _faulty(rows, episode)}),
        no_fault_episodes=no_fault_episodes,
        strongest_control=control,
        note=note,
    )


def _faulty(rows: Sequence[ResultRow], episode: str) -> bool:
    return any(row.truth.faulty for row in rows if row.episode == episode)


def _sort_key(
    metrics: tuple[Metric, ...], estimates: Mapping[str, Mapping[str, Estimate]]
) -> Callable[[str], tuple[float, ...]]:
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
    first: Mapping[str, float], second: Mapping[str, float], clusters: Mapping[str, Any], seed: int
) -> PairedDifference:
    common = sorted(first.keys() & second.keys())
    return paired_difference(
        [first[e] for e in common], [second[e] for e in common], [clusters[e] for e in common], seed
    )


def _detection(episodes: Iterable[Heard], seed: int) -> dict[str, Estimate]:
    found = list(episodes)
    faulty = [one for one in found if one.truth.faulty]
    return detection_estimates(faulty, [one for one in found if not one.truth.faulty], seed)


def _detection_of_seed(rows: Sequence[ResultRow]) -> float:
    rights = correctness({row.episode: heard([row]) for row in rows})
    return float(np.mean(list(rights.values())))


def _localization_of_seed(rows: Sequence[ResultRow]) -> float:
    return float(np.mean([located([row]).ac1 for row in rows]))


def _spread(episodes: Mapping[str, list[ResultRow]], value: Callable[[Sequence[ResultRow]], float]) -> float | None:
    seeds: dict[int, list[ResultRow]] = defaultdict(list)
    for rows in episodes.values():
        for row in rows:
            seeds[row.seed].append(row)
    if len(seeds) < 2:
        return None
    return float(np.std([value(rows) for rows in seeds.values()], ddof=1))


def _by(rows: Sequence[ResultRow]) -> dict[str, dict[str, list[ResultRow]]]:
    by: dict[str, dict[str, list[ResultRow]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row.key):
        by[row.baseline][row.episode].append(row)
    return by


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else math.nan


def _note(*, faulty: int, healthy: int, verdict: str) -> str:
    if not healthy:
        return "There is no no-fault episode, so false alarms are unknown and always-yes would look perfect."
    if not faulty:
        return f"There is no {verdict} fault episode; only false alarms can be judged."
    return ""


def _failures(rows: Sequence[ResultRow]) -> Iterable[Failure]:
    for row in sorted(rows, key=lambda row: row.key):
        if row.status not in ("ok", "no_alarm"):
            yield Failure(
                baseline=row.baseline,
                episode=row.episode,
                task=row.task,
                protocol=row.protocol,
                seed=row.seed,
                status=row.status,
                reason=row.reason,
            )


def _early_alarms(rows: Sequence[ResultRow]) -> dict[str, int]:
    """Count fault episodes by when the alarm that localizers were told was raised."""
    told: dict[str, str] = {}
    for row in rows:
        if row.task == "localization" and row.protocol == "detected" and row.truth.faulty:
            told[row.episode] = "none" if row.told_ns is None else "before onset" if row.told_early else "after onset"
    return dict(Counter(told.values()))
