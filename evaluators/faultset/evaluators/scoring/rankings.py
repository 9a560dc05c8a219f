"""Score one ranking of services or metrics against the causes of an episode.

Every number is the expected value over random orders of tied candidates (McSherry and Najork, ECIR 2008), so the
alphabet decides nothing. A cause is a set of accepted names; candidates that a ranking leaves out share its last place.
An empty ranking is the answer "no fault" and a miss. Metrics have no closed list: those that a ranking leaves out are
misses, and guessing has no closed form."""

from __future__ import annotations

import fnmatch
import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

Causes = Sequence[AbstractSet[str]]
AVG_DEPTH = 5


@dataclass(frozen=True, kw_only=True)
class LocalizationScore:
    """Scores of one ranking."""

    blocks: Sequence[AbstractSet[str]]
    """Candidates from best to worst, those with equal scores together; empty if none has a score."""
    causes: Causes
    size: int
    """Number of candidates."""

    def ac(self, k: int) -> float:
        """Return the field's AC@k: causes among the first k, over min(k, number of causes)."""
        return self._found(k) / min(k, len(self.causes))

    def recall(self, k: int) -> float:
        """Return the share of causes among the first k."""
        return self._found(k) / len(self.causes)

    def hit(self, k: int) -> float:
        """Return whether any cause is among the first k."""
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
        """Rank of the first cause; the number of candidates without an answer."""
        return expected_of_first(self.blocks, self._any_cause, float, missing=float(self.size))

    @property
    def _any_cause(self) -> frozenset[str]:
        return frozenset().union(*self.causes)

    def _found(self, k: int) -> float:
        return sum(chance_in_top(self.blocks, cause, k) for cause in self.causes)


def score_ranking(scores: Mapping[str, float], causes: Causes, candidates: Sequence[str]) -> LocalizationScore:
    """Score one ranking against the causes of one episode.

    Parameters
    ----------
    scores
        Candidate to score, higher is more likely; unknown names and NaN are as if left out.
    causes
        For every root cause the names that count as finding it.
    candidates
        Closed list that was published to the method.
    """
    if not causes:
        raise ValueError("an episode without a root cause cannot be scored for localization")
    return LocalizationScore(blocks=tied_blocks(scores, candidates), causes=causes, size=len(candidates))


def tied_blocks(scores: Mapping[str, float], candidates: Sequence[str]) -> list[frozenset[str]]:
    """Candidates from best to worst, equal scores together; empty when no candidate has a score."""
    known = {name: float(scores[name]) for name in candidates if name in scores and not math.isnan(scores[name])}
    if not known:
        return []
    value_of = known.__getitem__
    blocks = [frozenset(tied) for _, tied in groupby(sorted(known, key=value_of, reverse=True), key=value_of)]
    rest = frozenset(candidates) - known.keys()
    return [*blocks, rest] if rest else blocks


def chance_in_top(blocks: Sequence[AbstractSet[str]], names: AbstractSet[str], k: int) -> float:
    """Probability that at least one of `names` is among the first k when ties are broken at random."""
    above = 0
    for block in blocks:
        wanted, size, room = len(block & names), len(block), k - above
        if room <= 0:
            return 0.0
        if wanted:
            if room >= size:
                return 1.0
            return 1.0 - math.comb(size - wanted, room) / math.comb(size, room)
        above += size
    return 0.0


def expected_of_first(blocks: Sequence[AbstractSet[str]], names: AbstractSet[str], of, missing: float) -> float:
    """Expected value of `of(rank)` at the first of `names`, ranks from 1, ties broken at random."""
    above = 0
    for block in blocks:
        wanted, size = len(block & names), len(block)
        if wanted:
            ways = math.comb(size, wanted)
            return sum(
                math.comb(size - place, wanted - 1) / ways * of(above + place) for place in range(1, size - wanted + 2)
            )
        above += size
    return missing


def failed_score(candidates: Sequence[str]) -> LocalizationScore:
    """Score of a run that gave no answer: a miss at every depth."""
    return score_ranking({}, [frozenset({"-"})], candidates)


def random_floor(causes: Causes, candidates: Sequence[str]) -> LocalizationScore:
    """What ranking the candidates at random scores, in closed form: everything is one tied block."""
    return score_ranking(dict.fromkeys(candidates, 0.0), causes, candidates)


def lift(value: float, floor: float) -> float:
    """Chance-corrected value: 0 at the floor, 1 when perfect; NaN where the floor is already perfect."""
    return (value - floor) / (1.0 - floor) if floor < 1.0 else math.nan


def leading(scores: Mapping[str, float], candidates: Sequence[str]) -> frozenset[str]:
    """Candidates that a ranking puts first, all that are tied there: its answer as a set."""
    blocks = tied_blocks(scores, candidates)
    return blocks[0] if blocks else frozenset()


def canonical(names: AbstractSet[str], causes: Causes) -> frozenset[str]:
    """Replace every accepted name of a cause by one and the same, so that sets of names can be compared."""
    canonical_names = {name: min(cause) for cause in causes for name in cause}
    return frozenset(canonical_names.get(name, name) for name in names)


@dataclass(frozen=True, kw_only=True)
class SetScore:
    """Agreement of a returned set with the true set."""

    exact: bool
    precision: float
    recall: float
    f1: float
    jaccard: float


def score_set(answer: AbstractSet[Hashable], truth: AbstractSet[Hashable]) -> SetScore:
    """Score a set of names; precision is NaN for an empty answer, recall NaN for an empty truth."""
    hit = len(answer & truth)
    union = len(answer | truth)
    return SetScore(
        exact=answer == truth,
        precision=hit / len(answer) if answer else math.nan,
        recall=hit / len(truth) if truth else math.nan,
        f1=2 * hit / (len(answer) + len(truth)) if answer or truth else math.nan,
        jaccard=hit / union if union else math.nan,
    )


_DERIVED = ("_error_rate", "_mean", "_rate")


def score_metrics(ranked: Sequence[tuple[str, str, float]], causes: Sequence[tuple[str, str]]) -> LocalizationScore:
    """Score [service, metric, score] triples against (service, metric) causes; ties by expectation."""
    scores = {f"{service}\0{metric}": score for service, metric, score in ranked if not math.isnan(score)}
    if not scores:
        return failed_score(["-"])
    right = [
        frozenset(f"{s}\0{m}" for s, m, _ in ranked if s == service and metric_matches(m, metric))
        for service, metric in causes
    ]
    return score_ranking(scores, right, list(scores))


def metric_matches(named: str, true: str) -> bool:
    """Whether a metric that a method names is one that the truth names.

    The truth may hold a pattern with `*`; a method may name what was derived from the stored metric, such as its rate.

    Examples
    --------
    >>> metric_matches('container_cpu_usage_seconds_total{mode="user"}', "container_cpu_*")
    True
    """
    stem = named.partition("{")[0]
    names = {stem, *(stem.removesuffix(suffix) for suffix in _DERIVED)}
    return any(fnmatch.fnmatchcase(name, true) for name in names)


Calls = Sequence[tuple[str, str]]
"""(caller, callee) pairs."""
Miss = Literal["hit", "symptom", "unrelated", "none"]
"""hit: a cause · symptom: a service that depends on a cause, directly or not · unrelated: any other · none: no
answer."""
MISSES: tuple[Miss, ...] = ("hit", "symptom", "unrelated", "none")


def hops(calls: Calls, start: Iterable[str], goals: AbstractSet[str]) -> float:
    """Fewest calls, in either direction, between any of `start` and any of `goals`; infinite where no way leads.

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
    seen = {name for name, _ in waiting}
    while waiting:
        name, distance = waiting.popleft()
        if name in goals:
            return float(distance)
        for neighbour in neighbours.get(name, set()) - seen:
            seen.add(neighbour)
            waiting.append((neighbour, distance + 1))
    return math.inf


def dependents(calls: Calls, causes: AbstractSet[str]) -> frozenset[str]:
    """Services that call a cause, directly or through others: those who feel it."""
    callers: dict[str, set[str]] = {}
    for caller, callee in calls:
        callers.setdefault(callee, set()).add(caller)
    found: set[str] = set()
    waiting = list(causes)
    while waiting:
        new = callers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return frozenset(found - causes)


def kinds_of_answer(named: AbstractSet[str], causes: AbstractSet[str], calls: Calls) -> Mapping[Miss, float]:
    """Shares of the services that are tied in first place, by what they are to the cause; they add up to one."""
    if not named:
        return {kind: float(kind == "none") for kind in MISSES}
    feeling = dependents(calls, causes)
    hit = len(named & causes) / len(named)
    symptom = len((named - causes) & feeling) / len(named)
    return {"hit": hit, "symptom": symptom, "unrelated": max(0.0, 1.0 - hit - symptom), "none": 0.0}
