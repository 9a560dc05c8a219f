"""Build a leaderboard from result rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.trajectory_contents import InspectedServices
from faultset.core.times import SECOND_NS
from faultset.evaluators.leaderboards.agents import agent_lines
from faultset.evaluators.leaderboards.records import (
    TELEMETRY,
    Failure,
    Leaderboard,
    Misses,
    Stratum,
    Table,
    is_headline,
)
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting, build_curves, score_episodes
from faultset.evaluators.leaderboards.tables import VERDICTS, build_tables
from faultset.evaluators.results.rows import NO_FAILURES, ResultRow
from faultset.evaluators.results.truth import UNNOTICED, Truth
from faultset.evaluators.scoring.localization import first_rank
from faultset.evaluators.scoring.metrics import Metric, ScoredCase
from faultset.evaluators.scoring.rankings import ANSWER_KINDS
from faultset.evaluators.scoring.thresholds import ThresholdPolicy, choose_policies

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
    """Count, by reason, the fault episodes that a task cannot be scored on and that no denominator includes."""
    reasons = {
        "localization: no root cause among the candidates": sum(not truth.causes for truth in faulty),
        "root cause: level or type unknown": sum(not truth.diagnoses for truth in faulty),
        "onset unknown: no event metrics, no protocol oracle": sum(truth.onset_ns is None for truth in faulty),
    }
    if "localization" not in tasks:
        reasons.pop("localization: no root cause among the candidates")
    if "rca" not in tasks:
        reasons.pop("root cause: level or type unknown")
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
            yield Failure(
                baseline=row.baseline,
                episode=row.episode,
                task=row.task,
                protocol=row.protocol,
                seed=row.seed,
                status=row.status,
                reason=row.reason,
            )


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
