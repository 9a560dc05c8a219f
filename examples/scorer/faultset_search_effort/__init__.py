"""A metric for localizers: how many wrong services an engineer examines first."""

from __future__ import annotations

import math

from faultset.evaluators import Metric, ResultRow, Truth


def search_effort(row: ResultRow) -> float:
    """Return the share of services that are examined before the first cause; ties count half."""
    truth = row.truth
    causes = {name for names in truth.causes for name in names}
    others = len(truth.candidates) - 1
    if not causes or others < 1:
        return math.nan  # this episode is left out
    if row.status != "ok" or not row.ranking:
        return 1.0  # no answer is the worst answer
    lowest = min(row.ranking.values()) - 1.0  # services that are left out share the last place
    scores = {name: row.ranking.get(name, lowest) for name in truth.candidates}
    best = max(scores[name] for name in causes)
    before = sum(score > best for score in scores.values())
    tied = sum(score == best for name, score in scores.items() if name not in causes)
    return min(1.0, (before + tied / 2) / others)


def guessing(truth: Truth) -> float:
    """Return the expected value for a random order, half of the services; NaN with several causes."""
    return 0.5 if len(truth.causes) == 1 else math.nan


SEARCH_EFFORT = Metric(
    name="search_effort",
    title="search effort",
    unit="share",
    better="lower",
    task="localization",
    meaning="share of services that are examined before the first cause",
    compute=search_effort,
    floor=guessing,
)
