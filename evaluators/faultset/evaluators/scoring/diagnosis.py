"""Root cause metrics: system level and fault type as AIOpsLab means them, alone and together."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.localization import names_nothing
from faultset.evaluators.scoring.metrics import Metric, ScoredCase, median
from faultset.evaluators.scoring.rankings import SetScore, score_set
from faultset.evaluators.statistics.intervals import TOO_FEW, Estimate

Pair = tuple[str, str]
NOTHING_TO_LEARN_FROM = f"{TOO_FEW}: no training episode has the label of a tested fault"
_BEST_CONSTANT = "best constant of the training labels"


def macro_f1(answers: Sequence[str | None], truths: Sequence[AbstractSet[str]]) -> float:
    """Return the macro-averaged F1 over the classes that occur; NaN without episodes.

    Where an episode has several classes, an answer finds one of them and misses the others.

    Examples
    --------
    >>> macro_f1(["a", "a", "a", None], [{"a"}, {"a"}, {"b"}, {"b"}])
    0.4
    >>> macro_f1(["a"], [{"a", "b"}])
    0.5
    """
    if len(answers) != len(truths):
        raise ValueError(f"{len(answers)} answers for {len(truths)} episodes")
    scores = []
    for name in sorted(frozenset().union(*truths)):
        hit = sum(a == name and name in t for a, t in zip(answers, truths, strict=True))
        scores.append(2 * hit / (sum(a == name for a in answers) + sum(name in t for t in truths)))
    return sum(scores) / len(scores) if scores else math.nan


def best_constant(training: Sequence[Pair]) -> Pair | None:
    """Return the pair that is most often right on training labels; ties go to the alphabetically first."""
    counts = Counter(training)
    return min(counts, key=lambda pair: (-counts[pair], pair)) if counts else None


def named_pair(row: ResultRow) -> tuple[str | None, str | None]:
    """Return the system level and fault type that a row names."""
    if row.status != "ok":
        return None, None
    return row.answer.get("system_level"), row.answer.get("fault_type")


def _parts(truth: Truth, part: int) -> frozenset[str]:
    """Return the right system levels (part 0) or fault types (1)."""
    return frozenset(pair[part] for pair in truth.diagnoses)


def _joint(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair in truth.diagnoses)


def _level(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair[0] in _parts(truth, 0))


def _type(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair[1] in _parts(truth, 1))


def _right(name: str, score: Callable[[tuple[str | None, str | None], Truth], float], meaning: str) -> Metric:
    """Declare a share that follows from the pair that is named; guessing is the best constant pair of each fold."""

    def guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
        if not any(case.rows[0].majority_label for case in cases):
            return None
        values = [score(case.rows[0].majority_label or ("", ""), case.truth) for case in cases]
        return Estimate(value=float(np.mean(values)), n=len(cases), method=_BEST_CONSTANT)

    return Metric(
        name=name,
        title=name,
        unit="share",
        task="rca",
        meaning=meaning,
        compute=lambda row: score(named_pair(row), row.truth),
        guess=guess,
    )


def _macro(name: str, title: str, part: int, meaning: str) -> Metric:
    """Declare macro-F1 of one part, the mean over seeds; no interval, because classes come and go with the episodes."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        truths = [_parts(case.truth, part) for case in cases]
        seeds = min((len(case.rows) for case in cases), default=0)
        values = [macro_f1([named_pair(case.rows[i])[part] for case in cases], truths) for i in range(seeds)]
        value = float(np.mean(values)) if values else math.nan
        return Estimate(value=value, n=len(cases), reason="no interval: classes come and go")

    def guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
        labels = [case.rows[0].majority_label for case in cases]
        if not any(labels):
            return None
        constant = [None if label is None else label[part] for label in labels]
        value = macro_f1(constant, [_parts(case.truth, part) for case in cases])
        return Estimate(value=value, n=len(cases), method=_BEST_CONSTANT)

    return Metric(name=name, title=title, unit="share", task="rca", meaning=meaning, aggregate=aggregate, guess=guess)


def _score_pairs(row: ResultRow) -> SetScore:
    """Compare the pair that an answer names with the pairs of all faults."""
    pair = named_pair(row)
    named = frozenset() if pair == (None, None) else frozenset({pair})
    return score_set(named, row.truth.diagnoses)


def _of_pairs(name: str, title: str, read: Callable[[SetScore], float], meaning: str) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="share",
        task="rca",
        headline=False,
        meaning=meaning,
        compute=lambda row: read(_score_pairs(row)),
    )


JOINT = _right(
    "joint",
    _joint,
    "system level and fault type are both right: those of the fault, or together of one of several faults",
)
LEVEL = _right("level", _level, "the system level is right")
TYPE = _right("type", _type, "the fault type is right")
PARTS = dataclasses.replace(
    _right(
        "parts",
        lambda pair, truth: (_level(pair, truth) + _type(pair, truth)) / 2,
        "mean of the two parts, each counted as half a case",
    ),
    of_case=lambda case: (case.value(LEVEL) + case.value(TYPE)) / 2,
)
ANSWERED = Metric(
    name="answered",
    title="answered",
    unit="share",
    task="rca",
    headline=False,
    meaning="share of episodes with a level or a type named",
    compute=lambda row: named_pair(row) != (None, None),
)

DIAGNOSIS_METRICS = (
    JOINT,
    PARTS,
    LEVEL,
    TYPE,
    _macro("macro_f1_level", "macro-F1 level", 0, "mean F1 over the system levels that occur"),
    _macro("macro_f1_type", "macro-F1 type", 1, "mean F1 over the fault types that occur"),
    Metric(
        name="time_to_diagnose_median",
        title="median time to diagnose",
        unit="s",
        better="lower",
        task="rca",
        headline=False,
        beside_first="if known",
        meaning="median seconds from the onset to the end of the shortest view from which on both parts are right, "
        "over the budgets of --evidence; computing time is not counted, a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="no budgets of evidence were tried",
    ),
    Metric(
        name="joint_answered",
        title="joint answered",
        unit="share",
        task="rca",
        headline=False,
        beside_first="if it differs",
        meaning="joint over episodes with an answer alone; what a method leaves out does not count against it",
        of_case=lambda case: case.value(JOINT) if case.value(ANSWERED) else math.nan,
    ),
    ANSWERED,
    Metric(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        task="rca",
        headline=False,
        meaning="share of no-fault episodes in which no alarm was given or nothing was named",
        episodes="no fault",
        compute=names_nothing,
    ),
    _of_pairs(
        "diagnosis_f1",
        "diagnosis F1",
        lambda score: score.f1,
        "F1 of the pair of level and type that is named against the pairs of all faults",
    ),
    _of_pairs(
        "exact_diagnosis",
        "exact diagnosis",
        lambda score: float(score.exact),
        "the level and type that are named are those of every fault",
    ),
)
