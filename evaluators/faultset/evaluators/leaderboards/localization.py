"""Localization metrics: where the cause stands in each ranking, and the numbers that follow."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.leaderboards.records import Misses
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.localization import (
    LocalizationScore,
    leading,
    lift,
    random_floor,
    score_ranking,
)
from faultset.evaluators.scoring.propagation import MISSES, hops, kinds_of_answer
from faultset.evaluators.statistics.clusters import SHARE, clustered_mean, clustered_median, clustered_ratio
from faultset.evaluators.statistics.estimates import Estimate, unknown
from faultset.evaluators.statistics.median_times import median_time

LOCALIZATION_METRICS = (
    Metric(
        name="ac1",
        title="AC@1",
        unit="share",
        meaning="expected share of episodes in which the first service named is a cause",
    ),
    Metric(name="ac3", title="AC@3", unit="share", meaning="causes among the first three, over min(3, causes)"),
    Metric(name="avg5", title="Avg@5", unit="share", meaning="mean of AC@1 to AC@5"),
    Metric(name="mrr", title="MRR", unit="share", meaning="mean of 1 / rank of the first cause, 0 when absent"),
    Metric(
        name="median_rank",
        title="median rank",
        unit="rank",
        better="lower",
        meaning="services that an operator examines up to the right one; all of them when there is no answer",
    ),
    Metric(
        name="lift1",
        title="lift of AC@1",
        meaning="AC@1 corrected for chance: 0 is random guessing, 1 is perfect, negative is worse than guessing",
    ),
    Metric(name="ac5", title="AC@5", unit="share", meaning="causes among the first five, over min(5, causes)"),
    Metric(name="hit1", title="hit@1", unit="share", meaning="any cause in first place"),
    Metric(name="hit3", title="hit@3", unit="share", meaning="any cause among the first three"),
    Metric(name="recall3", title="recall@3", unit="share", meaning="causes among the first three, over all causes"),
    Metric(name="answered", title="answered", unit="share", meaning="share of episodes with a non-empty ranking"),
    Metric(
        name="ac1_answered",
        title="AC@1 answered",
        unit="share",
        meaning="AC@1 over episodes with an answer alone; what a method leaves out does not count against it",
    ),
    Metric(
        name="ac1_own",
        title="AC@1 own trigger",
        unit="share",
        meaning="AC@1 when given the alarm of the method's own trigger instead, where it has one; no alarm is a miss",
    ),
    Metric(
        name="ttl_median",
        title="median TTL",
        unit="s",
        better="lower",
        meaning="median seconds from the onset to the end of the shortest view from which on the cause stands first, "
        "over the budgets of --evidence; computing time is not counted, a miss is infinite",
    ),
    Metric(name="hit5", title="retrieval@5", unit="share", meaning="any cause among the first five"),
    Metric(
        name="rerank",
        title="rerank",
        unit="share",
        meaning="hit@1 over hit@5: of the causes that reach the first five, the share that comes first; "
        "hit@1 is retrieval@5 times this",
    ),
    Metric(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        meaning="share of no-fault episodes in which no alarm was given or no service was named",
    ),
)
TABLE_COLUMNS = LOCALIZATION_METRICS[:6]


@dataclass(frozen=True, kw_only=True)
class LocalizationFacts:
    """What one localizer answered on one episode; means over seeds where it has several."""

    truth: Truth
    ac1: float
    ac3: float
    ac5: float
    avg5: float
    mrr: float
    hit1: float
    hit3: float
    hit5: float
    recall3: float
    rank: float
    lift1: float
    answered: float
    kinds: Mapping[str, float]
    """What the services in first place are to the cause, as shares."""
    hops: float
    """Fewest calls between first place and cause in the first seed; NaN without an answer."""


_MEANS = ("ac1", "ac3", "ac5", "avg5", "mrr", "hit1", "hit3", "hit5", "recall3", "rank", "lift1")


def localization_facts(rows: Sequence[ResultRow]) -> LocalizationFacts:
    """Put the rows of one localizer on one episode, one for each seed, together; no answer is a miss."""
    truth = rows[0].truth
    causes = [frozenset(cause) for cause in truth.causes]
    rankings = [row.ranking if row.status == "ok" else {} for row in rows]
    scores = [score_ranking(ranking, causes, truth.candidates) for ranking in rankings]
    first = [leading(ranking, truth.candidates) for ranking in rankings]
    kinds = [kinds_of_answer(names, frozenset().union(*causes), truth.calls) for names in first]
    floor = _floor(truth.causes, truth.candidates).ac[1]
    mean = lambda values: float(sum(values) / len(values))  # noqa: E731
    return LocalizationFacts(
        truth=truth,
        **{name: mean([_read(score, name, floor) for score in scores]) for name in _MEANS},
        answered=mean([bool(ranking) for ranking in rankings]),
        kinds={kind: mean([found[kind] for found in kinds]) for kind in MISSES},
        hops=hops(truth.calls, first[0], frozenset().union(*causes)) if first[0] else math.nan,
    )


@functools.lru_cache(maxsize=4096)
def _floor(causes: tuple[tuple[str, ...], ...], candidates: tuple[str, ...]) -> LocalizationScore:
    return random_floor([frozenset(cause) for cause in causes], candidates)


def _read(score: LocalizationScore, name: str, floor: float) -> float:
    if name.startswith("ac"):
        return score.ac[int(name[2:])]
    if name.startswith("hit"):
        return score.hit[int(name[3:])]
    values = {
        "avg5": score.avg5,
        "mrr": score.reciprocal_rank,
        "recall3": score.recall[3],
        "rank": score.expected_rank,
        "lift1": lift(score.ac[1], floor),
    }
    return values[name]


def localization_estimates(
    episodes: Sequence[LocalizationFacts],
    *,
    own: Mapping[str, LocalizationFacts] | None = None,
    times: Mapping[str, float] | None = None,
    abstentions: Sequence[float] = (),
) -> dict[str, Estimate]:
    """Every localization metric of one localizer.

    Parameters
    ----------
    own
        The same episodes when given the alarm of the method's own trigger.
    times
        Seconds after the onset up to which each episode had to be seen, where that was tried.
    abstentions
        For each no-fault episode the share of seeds that named no service.
    """
    keys = [one.truth.cluster for one in episodes]
    names = [name for name in (*_MEANS, "answered") if name != "rank"]
    estimates = {
        name: clustered_mean([getattr(one, name) for one in episodes], keys, bounds=None if name == "lift1" else SHARE)
        for name in names
    }
    answered = [one for one in episodes if one.answered]
    estimates["ac1_answered"] = clustered_mean([one.ac1 for one in answered], [one.truth.cluster for one in answered])
    estimates["median_rank"] = clustered_median([one.rank for one in episodes], keys)
    estimates["rerank"] = clustered_ratio([one.hit1 for one in episodes], [one.hit5 for one in episodes], keys)
    mine = [own[one.truth.episode] for one in episodes if own and one.truth.episode in own]
    estimates["ac1_own"] = (
        clustered_mean([one.ac1 for one in mine], [one.truth.cluster for one in mine])
        if mine
        else unknown("the method has no trigger of its own")
    )
    estimates["ttl_median"] = median_time(times, {one.truth.episode: one.truth.cluster for one in episodes})
    estimates["correct_abstentions"] = (
        clustered_mean(list(abstentions), list(range(len(abstentions))))
        if abstentions
        else unknown("no no-fault episodes")
    )
    return estimates


def misses_of(baseline: str, protocol: str, episodes: Sequence[LocalizationFacts]) -> Misses:
    """Say of what kind a localizer's first places are, and how far they lie from the cause."""
    distances = ["none" if math.isnan(one.hops) else f"{one.hops:g}" for one in episodes]
    return Misses(
        baseline=baseline,
        protocol=protocol,
        episodes=len(episodes),
        **{kind: float(np.mean([one.kinds[kind] for one in episodes])) for kind in MISSES},
        hops=dict(sorted(Counter(distances).items())),
    )


def guessing_floor(truths: Sequence[Truth]) -> dict[str, Estimate]:
    """Return what ranking the candidates at random scores on these episodes, in closed form."""
    if not truths:
        return {}
    floors = [_floor(truth.causes, truth.candidates) for truth in truths]
    values = {
        "ac1": [f.ac[1] for f in floors],
        "ac3": [f.ac[3] for f in floors],
        "ac5": [f.ac[5] for f in floors],
        "avg5": [f.avg5 for f in floors],
        "mrr": [f.reciprocal_rank for f in floors],
        "hit1": [f.hit[1] for f in floors],
        "hit3": [f.hit[3] for f in floors],
        "hit5": [f.hit[5] for f in floors],
        "recall3": [f.recall[3] for f in floors],
        "lift1": [0.0],
        "rerank": [sum(f.hit[1] for f in floors) / sum(f.hit[5] for f in floors)],
    }
    floor = {name: Estimate(value=float(np.mean(v)), n=len(truths), method="closed form") for name, v in values.items()}
    ranks = sorted(f.expected_rank for f in floors)
    floor["median_rank"] = Estimate(value=ranks[len(ranks) // 2], n=len(truths), method="closed form")
    return floor
