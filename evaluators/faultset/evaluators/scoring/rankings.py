"""Score a ranking of services or metrics against the causes of an episode.

Every number is the expected value over random orders of tied candidates (McSherry and Najork, ECIR 2008), so names do
not break ties. A cause is a set of accepted names. Candidates without a score share the last rank. An empty ranking is
a miss. Metrics have no fixed list of candidates, so a metric without a score is a miss, and the score of guessing is
unknown.
"""

from __future__ import annotations

import fnmatch
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Causes = Sequence[AbstractSet[str]]
AVG_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class LocalizationScore:
    """Scores of a ranking."""

    blocks: Sequence[AbstractSet[str]]
    """Candidates from best to worst, with equal scores in one block; empty if no candidate has a score."""
    causes: Causes
    size: int
    """Number of candidates."""

    def ac(self, k: int) -> float:
        """Return AC@k: causes among the first k, over min(k, number of causes)."""
        return self._count_hits(k) / min(k, len(self.causes))

    def recall(self, k: int) -> float:
        """Return the share of causes among the first k."""
        return self._count_hits(k) / len(self.causes)

    def hit(self, k: int) -> float:
        """Return the probability that any cause is among the first k."""
        return chance_in_top(self.blocks, self._any_cause, k)

    @property
    def avg5(self) -> float:
        """Mean of AC@1 to AC@5."""
        return sum(self.ac(k) for k in range(1, AVG_DEPTH + 1)) / AVG_DEPTH

    @property
    def reciprocal_rank(self) -> float:
        """1 / rank of the first cause; 0 without an answer."""
        return expected_of_first(self.blocks, self._any_cause, lambda rank: 1.0 / rank, missing=0.0)

    @property
    def expected_rank(self) -> float:
        """Rank of the first cause; if there is no answer, the number of candidates."""
        return expected_of_first(self.blocks, self._any_cause, float, missing=float(self.size))

    @property
    def _any_cause(self) -> frozenset[str]:
        return frozenset().union(*self.causes)

    def _count_hits(self, k: int) -> float:
        return sum(chance_in_top(self.blocks, cause, k) for cause in self.causes)


def score_ranking(scores: Mapping[str, float], causes: Causes, candidates: Sequence[str]) -> LocalizationScore:
    """Score a ranking against the causes of an episode.

    Parameters
    ----------
    scores
        Candidate -> score, higher is more suspicious. Unknown names and NaN are ignored.
    causes
        Accepted names of every root cause.
    candidates
        All names that an answer may contain.
    """
    if not causes:
        raise ValueError("an episode without a root cause cannot be scored for localization")
    return LocalizationScore(blocks=tied_blocks(scores, candidates), causes=causes, size=len(candidates))


def tied_blocks(scores: Mapping[str, float], candidates: Sequence[str]) -> list[frozenset[str]]:
    """Return candidates from best to worst, with equal scores in one block; empty if no candidate has a score."""
    scored = {name: float(scores[name]) for name in candidates if name in scores and not math.isnan(scores[name])}
    if not scored:
        return []
    value_of = scored.__getitem__
    blocks = [frozenset(tied) for _, tied in groupby(sorted(scored, key=value_of, reverse=True), key=value_of)]
    unscored = frozenset(candidates) - scored.keys()
    return [*blocks, unscored] if unscored else blocks


def chance_in_top(blocks: Sequence[AbstractSet[str]], names: AbstractSet[str], k: int) -> float:
    """Return the probability that any of `names` is among the first k, with ties in random order."""
    better_count = 0
    for block in blocks:
        hits, size, room = len(block & names), len(block), k - better_count
        if room <= 0:
            return 0.0
        if hits:
            if room >= size:
                return 1.0
            return 1.0 - math.comb(size - hits, room) / math.comb(size, room)
        better_count += size
    return 0.0


def expected_of_first(
    blocks: Sequence[AbstractSet[str]], names: AbstractSet[str], value: Callable[[int], float], missing: float
) -> float:
    """Return the expected `value(rank)` of the first of `names`, with ties in random order and ranks from 1."""
    better_count = 0
    for block in blocks:
        hits, size = len(block & names), len(block)
        if hits:
            combinations = math.comb(size, hits)
            return sum(
                math.comb(size - first, hits - 1) / combinations * value(better_count + first)
                for first in range(1, size - hits + 2)
            )
        better_count += size
    return missing


def failed_score(candidates: Sequence[str]) -> LocalizationScore:
    """Return the score of a missing answer."""
    return score_ranking({}, [frozenset({"-"})], candidates)


def random_floor(causes: Causes, candidates: Sequence[str]) -> LocalizationScore:
    """Return the score of a random ranking in closed form: all candidates are tied."""
    return score_ranking(dict.fromkeys(candidates, 0.0), causes, candidates)


def lift(value: float, floor: float) -> float:
    """Return the chance-corrected value: 0 at the floor, 1 if perfect, NaN if the floor is 1."""
    return (value - floor) / (1.0 - floor) if floor < 1.0 else math.nan


def find_leaders(scores: Mapping[str, float], candidates: Sequence[str]) -> frozenset[str]:
    """Return all candidates that share the first rank."""
    blocks = tied_blocks(scores, candidates)
    return blocks[0] if blocks else frozenset()


def canonicalise(names: AbstractSet[str], causes: Causes) -> frozenset[str]:
    """Replace all accepted names of a cause with the same one, so that sets can be compared."""
    canonical_names = {name: min(cause) for cause in causes for name in cause}
    return frozenset(canonical_names.get(name, name) for name in names)


@dataclass(frozen=True, kw_only=True)
class SetScore:
    """Agreement of an answered set with the true set."""

    exact: bool
    f1: float
    jaccard: float


def score_set(answer: AbstractSet[Hashable], truth: AbstractSet[Hashable]) -> SetScore:
    """Compare a set with the true set; F1 and Jaccard index are NaN if both are empty."""
    hit = len(answer & truth)
    union = len(answer | truth)
    return SetScore(
        exact=answer == truth,
        f1=2 * hit / (len(answer) + len(truth)) if answer or truth else math.nan,
        jaccard=hit / union if union else math.nan,
    )


_DERIVED = ("_error_rate", "_mean", "_rate")


def score_metrics(ranked: Sequence[tuple[str, str, float]], causes: Sequence[tuple[str, str]]) -> LocalizationScore:
    """Score (service, metric, score) triples against (service, metric) causes."""
    scores = {f"{service}\0{metric}": score for service, metric, score in ranked if not math.isnan(score)}
    if not scores:
        return failed_score(["-"])
    right = [
        frozenset(f"{s}\0{m}" for s, m, _ in ranked if s == service and metric_matches(m, metric))
        for service, metric in causes
    ]
    return score_ranking(scores, right, list(scores))


def metric_matches(name: str, pattern: str) -> bool:
    """Return whether the metric that a method names is the true one.

    The truth may be a pattern with `*`. A method may name a derived metric, such as a rate.

    Examples
    --------
    >>> metric_matches('container_cpu_usage_seconds_total{mode="user"}', "container_cpu_*")
    True
    """
    stem = name.partition("{")[0]
    names = {stem, *(stem.removesuffix(suffix) for suffix in _DERIVED)}
    return any(fnmatch.fnmatchcase(variant, pattern) for variant in names)


Calls = Sequence[tuple[str, str]]
"""(caller, callee) pairs."""
AnswerKind = Literal["hit", "symptom", "unrelated", "none"]
"""hit: a cause · symptom: a direct or indirect caller of a cause · unrelated: another service · none: no answer."""
ANSWER_KINDS: tuple[AnswerKind, ...] = ("hit", "symptom", "unrelated", "none")


def hops(calls: Calls, start: Iterable[str], goals: AbstractSet[str]) -> float:
    """Return the fewest calls, in either direction, from any of `start` to any of `goals`; infinite without a path.

    Examples
    --------
    >>> hops([("web", "cart"), ("cart", "db")], ["web"], {"db"})
    2.0
    """
    neighbours: dict[str, set[str]] = {}
    for caller, callee in calls:
        neighbours.setdefault(caller, set()).add(callee)
        neighbours.setdefault(callee, set()).add(caller)
    waiting = deque((name, 0) for name in start)
    visited = {name for name, _ in waiting}
    while waiting:
        name, distance = waiting.popleft()
        if name in goals:
            return float(distance)
        for neighbour in neighbours.get(name, set()) - visited:
            visited.add(neighbour)
            waiting.append((neighbour, distance + 1))
    return math.inf


def dependents(calls: Calls, causes: AbstractSet[str]) -> frozenset[str]:
    """Return the direct and indirect callers of the causes."""
    callers: dict[str, set[str]] = {}
    for caller, callee in calls:
        callers.setdefault(callee, set()).add(caller)
    reached: set[str] = set()
    waiting = list(causes)
    while waiting:
        new = callers.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return frozenset(reached - causes)


def classify_answer(services: AbstractSet[str], causes: AbstractSet[str], calls: Calls) -> Mapping[AnswerKind, float]:
    """Return the share of each kind among the services that share the first rank."""
    if not services:
        return {kind: float(kind == "none") for kind in ANSWER_KINDS}
    symptoms = dependents(calls, causes)
    hit = len(services & causes) / len(services)
    symptom = len((services - causes) & symptoms) / len(services)
    return {"hit": hit, "symptom": symptom, "unrelated": max(0.0, 1.0 - hit - symptom), "none": 0.0}
