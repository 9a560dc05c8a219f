"""Localization metrics for rankings of services."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
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
from faultset.evaluators.scoring.rankings import (
    ANSWER_KINDS,
    LocalizationScore,
    SetScore,
    canonicalise,
    classify_answer,
    find_leaders,
    hops,
    lift,
    random_floor,
    score_metrics,
    score_ranking,
    score_set,
)
from faultset.evaluators.statistics.intervals import Estimate

ScoreField = Callable[[LocalizationScore], float]
"""Returns one number of a score."""


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


def _compute_from_ranking(read: ScoreField) -> Callable[[ResultRow], float]:
    return lambda row: read(ranking_score(row)) if row.truth.causes else math.nan


def _compute_from_guess(read: ScoreField) -> Callable[[Truth], float]:
    return lambda truth: read(score_guess(truth)) if truth.causes else math.nan


def declare_share(name: str, title: str, read: ScoreField, meaning: str, *, headline: bool = False) -> Metric:
    """Declare a share computed from a ranking of services, such as AC@k or hit@k."""
    return Metric(
        name=name,
        title=title,
        unit="share",
        task="localization",
        meaning=meaning,
        headline=headline,
        compute=_compute_from_ranking(read),
        floor=_compute_from_guess(read),
    )


def hit_at(k: int, title: str = "") -> Metric:
    """Declare hit@k."""
    words = {1: "has rank 1", 3: "is among the first three", 5: "is among the first five"}
    meaning = f"any cause {words.get(k, f'is among the first {k}')}"
    return declare_share(f"hit{k}", title or f"hit@{k}", lambda score: score.hit(k), meaning)


AC1 = declare_share(
    "ac1",
    "AC@1",
    lambda score: score.ac(1),
    "expected share of episodes in which the first-ranked service is a cause",
    headline=True,
)
AVG5 = declare_share("avg5", "Avg@5", lambda score: score.avg5, "mean of AC@1 to AC@5", headline=True)
HIT1 = hit_at(1)
HIT5 = hit_at(5, "retrieval@5")
RANK = Metric(
    name="median_rank",
    title="median rank",
    unit="rank",
    better="lower",
    task="localization",
    meaning="rank of the first cause, that is, how many services to examine; the number of candidates if there is no "
    "answer",
    compute=_compute_from_ranking(lambda score: score.expected_rank),
    aggregate=median,
    floor=_compute_from_guess(lambda score: score.expected_rank),
    guess=median_guess,
)
ANSWERED = Metric(
    name="answered",
    title="answered",
    unit="share",
    task="localization",
    headline=False,
    meaning="share of episodes with a non-empty ranking",
    compute=lambda row: bool(_get_ranking(row)),
)


def _compute_lift(row: ResultRow) -> float:
    return lift(ranking_score(row).ac(1), score_guess(row.truth).ac(1)) if row.truth.causes else math.nan


def _guess_rerank(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
    guesses = [score_guess(case.truth) for case in cases]
    hits = sum(guess.hit(5) for guess in guesses)
    return Estimate(value=sum(g.hit(1) for g in guesses) / hits, n=len(guesses), method=CLOSED_FORM) if hits else None


def names_nothing(row: ResultRow) -> bool:
    """Return whether an answer is empty, or missing for lack of an alarm."""
    if row.status == "no_alarm":
        return True
    return (
        row.status == "ok"
        and not row.ranking
        and not row.answer.get("system_level")
        and not row.answer.get("fault_type")
    )


@functools.lru_cache(maxsize=64)
def _score_set(first: frozenset[str], causes: tuple[tuple[str, ...], ...]) -> SetScore:
    accepted = [frozenset(names) for names in causes]
    return score_set(canonicalise(first, accepted), canonicalise(frozenset().union(*accepted), accepted))


def _declare_set_score(name: str, title: str, read: Callable[[SetScore], float], meaning: str) -> Metric:
    """Declare a score of the services that share rank 1 against the set of causes."""
    return Metric(
        name=name,
        title=title,
        unit="share",
        task="localization",
        headline=False,
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
        return Metric(
            name=f"{level}_{name}",
            title=f"{title}, {level}s",
            unit="share",
            task="localization",
            headline=False,
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
    declare_share(
        "ac3", "AC@3", lambda score: score.ac(3), "causes among the first three, over min(3, causes)", headline=True
    ),
    AVG5,
    declare_share(
        "mrr",
        "MRR",
        lambda score: score.reciprocal_rank,
        "mean of 1 / rank of the first cause, 0 when absent",
        headline=True,
    ),
    RANK,
    Metric(
        name="lift1",
        title="lift of AC@1",
        task="localization",
        meaning="AC@1 corrected for chance: 0 is guessing, 1 is perfect, negative is worse than guessing",
        compute=_compute_lift,
        floor=lambda truth: 0.0,
    ),
    declare_share("ac5", "AC@5", lambda score: score.ac(5), "causes among the first five, over min(5, causes)"),
    HIT1,
    hit_at(3),
    declare_share("recall3", "recall@3", lambda score: score.recall(3), "causes among the first three over all causes"),
    ANSWERED,
    Metric(
        name="ac1_answered",
        title="AC@1 answered",
        unit="share",
        task="localization",
        headline=False,
        shown_second="if fewer episodes",
        meaning="AC@1 over answered episodes only",
        brief=True,
        of_case=lambda case: case.value(AC1) if case.value(ANSWERED) else math.nan,
    ),
    Metric(
        name="ac1_own",
        title="AC@1 own detector",
        unit="share",
        task="localization",
        headline=False,
        shown_second="if known",
        meaning="AC@1 given the alarm of the method's own detector; no alarm is a miss",
        brief=True,
        of_case=lambda case: math.nan if case.at_own_alarm is None else case.at_own_alarm.value(AC1),
        unscored="the method does not declare its own detector",
    ),
    Metric(
        name="ttl_median",
        title="median TTL",
        unit="s",
        better="lower",
        task="localization",
        headline=False,
        shown_second="if known",
        meaning="median seconds from the onset until the method ranks a cause first and keeps it first, over the views "
        "of --evidence; computing time is not included, and a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="methods were not run with less evidence; add --evidence",
    ),
    HIT5,
    Metric(
        name="rerank",
        title="rerank",
        unit="share",
        task="localization",
        headline=False,
        meaning="hit@1 over hit@5: the share of causes among the first five that have rank 1; hit@1 is retrieval@5 "
        "times rerank",
        aggregate=ratio(HIT1, HIT5),
        guess=_guess_rerank,
    ),
    Metric(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        task="localization",
        headline=False,
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
