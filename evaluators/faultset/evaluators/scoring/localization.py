"""Localization metrics for rankings of services, pods and metrics.

Every number is the expected value over random orders of tied candidates (McSherry and Najork, ECIR 2008), so names do
not break ties. A cause is a set of accepted names. Candidates without a score share the last rank. An empty ranking is
a miss. Metrics have no fixed list of candidates, so a metric without a score is a miss, and the score of guessing is
unknown.
"""

from __future__ import annotations

import fnmatch
import functools
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.intervals import Estimate
from faultset.evaluators.scoring.metrics import (
    CLOSED_FORM,
    Metric,
    ScoredCase,
    limit_evidence,
    median,
    median_guess,
    once_per_case,
    once_per_row,
    ratio,
)

Causes = Sequence[AbstractSet[str]]


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
        return sum(self.ac(k) for k in range(1, 6)) / 5

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
    """Score a ranking (name -> score, higher is more suspicious) against the causes of an episode.

    Names that are not candidates and scores that are NaN are ignored.
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
            return 1.0 if room >= size else 1.0 - math.comb(size - hits, room) / math.comb(size, room)
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
            return sum(
                math.comb(size - first, hits - 1) / math.comb(size, hits) * value(better_count + first)
                for first in range(1, size - hits + 2)
            )
        better_count += size
    return missing


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


class SetScore(NamedTuple):
    """Agreement of an answered set with the true set."""

    exact: bool
    f1: float
    jaccard: float


def score_set(answer: AbstractSet[Hashable], truth: AbstractSet[Hashable]) -> SetScore:
    """Compare a set with the true set; F1 and Jaccard index are NaN if both are empty."""
    hit, union = len(answer & truth), len(answer | truth)
    return SetScore(
        exact=answer == truth,
        f1=2 * hit / (len(answer) + len(truth)) if union else math.nan,
        jaccard=hit / union if union else math.nan,
    )


_DERIVED = ("_error_rate", "_mean", "_rate")


def score_metrics(ranked: Sequence[tuple[str, str, float]], causes: Sequence[tuple[str, str]]) -> LocalizationScore:
    """Score (service, metric, score) triples against (service, metric) causes."""
    scores = {f"{service}\0{metric}": score for service, metric, score in ranked if not math.isnan(score)}
    if not scores:
        return LocalizationScore(blocks=(), causes=[frozenset()], size=1)
    right = [
        frozenset(f"{s}\0{m}" for s, m, _ in ranked if s == service and metric_matches(m, metric))
        for service, metric in causes
    ]
    return score_ranking(scores, right, list(scores))


def metric_matches(name: str, pattern: str) -> bool:
    """Return whether the metric that a method names is the true one.

    The truth may be a pattern with `*`. A method may name a derived metric, such as a rate.
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
    """Return the fewest calls, in either direction, from any of `start` to any of `goals`; infinite without a path."""
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
    reached: set[str] = set()
    waiting = list(causes)
    while waiting:
        callee = waiting.pop()
        new = {caller for caller, other in calls if other == callee} - reached
        reached |= new
        waiting += new
    return frozenset(reached - causes)


def classify_answer(services: AbstractSet[str], causes: AbstractSet[str], calls: Calls) -> Mapping[AnswerKind, float]:
    """Return the share of each kind among the services that share the first rank."""
    if not services:
        return {kind: float(kind == "none") for kind in ANSWER_KINDS}
    hit = len(services & causes) / len(services)
    symptom = len((services - causes) & dependents(calls, causes)) / len(services)
    return {"hit": hit, "symptom": symptom, "unrelated": max(0.0, 1.0 - hit - symptom), "none": 0.0}


ScoreField = Callable[[LocalizationScore], float]
_declare = functools.partial(Metric, task="localization", headline=False)


@once_per_row
def ranking_score(row: ResultRow) -> LocalizationScore:
    """Score the ranking of a row; a missing answer is a miss."""
    return score_ranking(_get_ranking(row), [frozenset(names) for names in row.truth.causes], row.truth.candidates)


@functools.lru_cache(maxsize=4096)
def _score_random_ranking(causes: tuple[tuple[str, ...], ...], candidates: tuple[str, ...]) -> LocalizationScore:
    return random_floor([frozenset(names) for names in causes], candidates)


def score_guess(truth: Truth) -> LocalizationScore:
    """Return the score of a random ranking of the candidates, in closed form."""
    return _score_random_ranking(truth.causes, truth.candidates)


def _get_ranking(row: ResultRow) -> Mapping[str, float]:
    return row.ranking if row.status == "ok" else {}


def declare_share(
    name: str, title: str, read: ScoreField, meaning: str, *, headline: bool = False, **fields: Any
) -> Metric:
    """Declare a number computed from a ranking of services, by default a share such as AC@k or hit@k."""
    return _declare(
        name=name,
        title=title,
        meaning=meaning,
        headline=headline,
        compute=lambda row: read(ranking_score(row)) if row.truth.causes else math.nan,
        floor=lambda truth: read(score_guess(truth)) if truth.causes else math.nan,
        **{"unit": "share", **fields},
    )


def hit_at(k: int, title: str = "") -> Metric:
    words = {1: "has rank 1", 3: "is among the first three", 5: "is among the first five"}
    meaning = f"any cause {words.get(k, f'is among the first {k}')}"
    return declare_share(f"hit{k}", title or f"hit@{k}", lambda score: score.hit(k), meaning)


def _ac_at(k: int, meaning: str, *, headline: bool = True) -> Metric:
    return declare_share(f"ac{k}", f"AC@{k}", lambda score: score.ac(k), meaning, headline=headline)


AC1 = _ac_at(1, "expected share of episodes in which the first-ranked service is a cause")
AVG5 = declare_share("avg5", "Avg@5", lambda score: score.avg5, "mean of AC@1 to AC@5", headline=True)
HIT1 = hit_at(1)
HIT5 = hit_at(5, "retrieval@5")
RANK = declare_share(
    "median_rank",
    "median rank",
    lambda score: score.expected_rank,
    "rank of the first cause, that is, how many services to examine; the number of candidates if there is no answer",
    headline=True,
    unit="rank",
    better="lower",
    aggregate=median,
    guess=median_guess,
)
ANSWERED = _declare(
    name="answered",
    title="answered",
    unit="share",
    meaning="share of episodes with a non-empty ranking",
    compute=lambda row: bool(_get_ranking(row)),
)


def _guess_rerank(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    guesses = [score_guess(case.truth) for case in cases]
    hits = sum(guess.hit(5) for guess in guesses)
    return Estimate(value=sum(g.hit(1) for g in guesses) / hits, n=len(guesses), method=CLOSED_FORM) if hits else None


def names_nothing(row: ResultRow) -> bool:
    """Return whether an answer is empty, or missing for lack of an alarm."""
    if row.status != "ok":
        return row.status == "no_alarm"
    return not row.ranking and not row.answer.get("system_level") and not row.answer.get("fault_type")


@functools.lru_cache(maxsize=64)
def _score_set(first: frozenset[str], causes: tuple[tuple[str, ...], ...]) -> SetScore:
    accepted = [frozenset(names) for names in causes]
    return score_set(canonicalise(first, accepted), canonicalise(frozenset().union(*accepted), accepted))


def _declare_set_score(name: str, title: str, read: Callable[[SetScore], float], meaning: str) -> Metric:
    """Declare a score of the services that share rank 1 against the set of causes."""
    return _declare(
        name=name,
        title=title,
        unit="share",
        meaning=meaning,
        compute=lambda row: read(_score_set(find_leaders(_get_ranking(row), row.truth.candidates), row.truth.causes)),
    )


@once_per_row
def _score_pods(row: ResultRow) -> LocalizationScore | None:
    pods = (row.answer if row.status == "ok" else {}).get("pods") or {}
    causes = [frozenset({pod}) for pod in row.truth.pod_causes]
    return score_ranking(pods, causes, list(pods)) if causes else None


@once_per_row
def _score_metrics(row: ResultRow) -> LocalizationScore | None:
    metrics = (row.answer if row.status == "ok" else {}).get("metrics") or ()
    return score_metrics(metrics, row.truth.metric_causes) if row.truth.metric_causes else None


def _declare_level(level: str, score_of: Callable[[ResultRow], LocalizationScore | None]) -> tuple[Metric, ...]:
    """Declare AC@k and MRR of the pods or metrics in an answer."""

    def declare(name: str, title: str, read: ScoreField) -> Metric:
        return _declare(
            name=f"{level}_{name}",
            title=f"{title}, {level}s",
            unit="share",
            meaning=f"{title} of the {level}s in the answer, on episodes whose truth names a {level}",
            compute=lambda row: math.nan if (score := score_of(row)) is None else read(score),
            unscored=f"the truth names no {level}s",
        )

    return (
        declare("ac1", "AC@1", lambda score: score.ac(1)),
        declare("ac3", "AC@3", lambda score: score.ac(3)),
        declare("ac5", "AC@5", lambda score: score.ac(5)),
        declare("mrr", "MRR", lambda score: score.reciprocal_rank),
    )


LOCALIZATION_METRICS = (
    AC1,
    *limit_evidence(AC1),
    _ac_at(3, "causes among the first three, over min(3, causes)"),
    AVG5,
    declare_share(
        "mrr",
        "MRR",
        lambda score: score.reciprocal_rank,
        "mean of 1 / rank of the first cause, 0 when absent",
        headline=True,
    ),
    RANK,
    _declare(
        name="lift1",
        title="lift of AC@1",
        headline=True,
        meaning="AC@1 corrected for chance: 0 is guessing, 1 is perfect, negative is worse than guessing",
        compute=lambda row: (
            lift(ranking_score(row).ac(1), score_guess(row.truth).ac(1)) if row.truth.causes else math.nan
        ),
        floor=lambda truth: 0.0,
    ),
    _ac_at(5, "causes among the first five, over min(5, causes)", headline=False),
    HIT1,
    hit_at(3),
    declare_share("recall3", "recall@3", lambda score: score.recall(3), "causes among the first three over all causes"),
    ANSWERED,
    _declare(
        name="ac1_answered",
        title="AC@1 answered",
        unit="share",
        shown_second="if fewer episodes",
        meaning="AC@1 over answered episodes only",
        brief=True,
        of_case=lambda case: case.value(AC1) if case.value(ANSWERED) else math.nan,
    ),
    _declare(
        name="ac1_own",
        title="AC@1 own detector",
        unit="share",
        shown_second="if known",
        meaning="AC@1 given the alarm of the method's own detector; no alarm is a miss",
        brief=True,
        of_case=lambda case: math.nan if case.at_own_alarm is None else case.at_own_alarm.value(AC1),
        unscored="the method does not declare its own detector",
    ),
    _declare(
        name="ttl_median",
        title="median TTL",
        unit="s",
        better="lower",
        shown_second="if known",
        meaning="median seconds from the onset until the method ranks a cause first and keeps it first, over the views "
        "of --evidence; computing time is not included, and a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="methods were not run with less evidence; add --evidence",
    ),
    HIT5,
    _declare(
        name="rerank",
        title="rerank",
        unit="share",
        meaning="hit@1 over hit@5: the share of causes among the first five that have rank 1; hit@1 is retrieval@5 "
        "times rerank",
        aggregate=ratio(HIT1, HIT5),
        guess=_guess_rerank,
    ),
    _declare(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        meaning="share of no-fault episodes without an alarm or with an empty answer",
        episodes="no fault",
        compute=names_nothing,
        unscored="no no-fault episodes",
    ),
    _declare_set_score(
        "exact_set",
        "exact set",
        lambda score: float(score.exact),
        "the services that share rank 1 are exactly the causes",
    ),
    _declare_set_score(
        "jaccard", "Jaccard", lambda score: score.jaccard, "overlap of the services that share rank 1 and the causes"
    ),
    *_declare_level("metric", _score_metrics),
    *_declare_level("pod", _score_pods),
    _declare_set_score(
        "set_f1", "set F1", lambda score: score.f1, "F1 of the services that share rank 1 against the causes"
    ),
)


class FirstRank(NamedTuple):
    """How the services that share rank 1 relate to the cause."""

    kinds: Mapping[str, float]
    """Shares of causes, symptoms, unrelated services and missing answers."""
    hops: float
    """Fewest calls between the first-ranked services and a cause, for the first seed; NaN without an answer."""


@once_per_case
def first_rank(case: ScoredCase) -> FirstRank:
    """Classify the services that share rank 1; shares are means over seeds."""
    truth, causes = case.truth, frozenset().union(*case.truth.causes)
    first = [find_leaders(_get_ranking(row), truth.candidates) for row in case.rows]
    kinds = [classify_answer(names, causes, truth.calls) for names in first]
    return FirstRank(
        kinds={kind: float(sum(shares[kind] for shares in kinds) / len(kinds)) for kind in ANSWER_KINDS},
        hops=hops(truth.calls, first[0], causes) if first[0] else math.nan,
    )
