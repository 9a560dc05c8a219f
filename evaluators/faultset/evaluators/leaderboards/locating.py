"""Localization tables: where the cause stood in each ranking, and the numbers that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from faultset.evaluators.leaderboards.records import Metric
from faultset.evaluators.rows import ResultRow, Truth
from faultset.evaluators.scoring.localization import LocalizationScore, lift, random_floor, score_ranking
from faultset.evaluators.statistics.clusters import clustered_mean, clustered_median
from faultset.evaluators.statistics.estimates import Estimate

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
        meaning="services an operator opens up to the right one; all of them when there is no answer",
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
)
TABLE_COLUMNS = LOCALIZATION_METRICS[:6]


@dataclass(frozen=True, kw_only=True)
class Located:
    """What one localizer said about one episode; means over seeds where it has several."""

    truth: Truth
    ac1: float
    ac3: float
    ac5: float
    avg5: float
    mrr: float
    hit1: float
    hit3: float
    recall3: float
    rank: float
    lift1: float
    answered: float


_MEANS = ("ac1", "ac3", "ac5", "avg5", "mrr", "hit1", "hit3", "recall3", "rank", "lift1", "answered")


def located(rows: Sequence[ResultRow]) -> Located:
    """Put the rows of one localizer on one episode, one for each seed, together; no answer is a miss."""
    truth = rows[0].truth
    scores = [_score(row) for row in rows]
    floor = random_floor([frozenset(c) for c in truth.causes], truth.candidates).ac[1]
    each = {name: [_read(score, name, floor) for score in scores] for name in _MEANS if name != "answered"}
    each["answered"] = [float(row.status == "ok" and bool(row.ranking)) for row in rows]
    return Located(truth=truth, **{name: float(np.mean(values)) for name, values in each.items()})


def _score(row: ResultRow) -> LocalizationScore:
    ranking = row.ranking if row.status == "ok" else {}
    return score_ranking(ranking, [frozenset(cause) for cause in row.truth.causes], row.truth.candidates)


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


def localization_estimates(episodes: Sequence[Located], seed: int) -> dict[str, Estimate]:
    """Every localization metric of one localizer."""
    keys = [one.truth.cluster for one in episodes]
    estimates = {
        name: clustered_mean([getattr(one, name) for one in episodes], keys, seed) for name in _MEANS if name != "rank"
    }
    estimates["median_rank"] = clustered_median([one.rank for one in episodes], keys, seed)
    return estimates


def guessing_floor(truths: Sequence[Truth]) -> dict[str, Estimate]:
    """What ranking the candidates at random scores on these episodes, in closed form."""
    if not truths:
        return {}
    floors = [random_floor([frozenset(c) for c in truth.causes], truth.candidates) for truth in truths]
    values = {
        "ac1": [f.ac[1] for f in floors],
        "ac3": [f.ac[3] for f in floors],
        "ac5": [f.ac[5] for f in floors],
        "avg5": [f.avg5 for f in floors],
        "mrr": [f.reciprocal_rank for f in floors],
        "hit1": [f.hit[1] for f in floors],
        "hit3": [f.hit[3] for f in floors],
        "recall3": [f.recall[3] for f in floors],
        "lift1": [0.0],
    }
    floor = {name: Estimate(value=float(np.mean(v)), n=len(truths), method="closed form") for name, v in values.items()}
    ranks = sorted(f.expected_rank for f in floors)
    floor["median_rank"] = Estimate(value=ranks[len(ranks) // 2], n=len(truths), method="closed form")
    return floor
