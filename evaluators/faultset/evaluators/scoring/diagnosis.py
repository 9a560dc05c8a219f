"""Root cause metrics: system level and fault type as AIOpsLab defines them, alone and together."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.intervals import TOO_FEW, Estimate
from faultset.evaluators.scoring.localization import SetScore, names_nothing, score_set
from faultset.evaluators.scoring.metrics import Metric, ScoredCase, limit_evidence, median

Pair = tuple[str, str]
NOTHING_TO_LEARN_FROM = f"{TOO_FEW}: no training episode has the label of a tested fault"
_BEST_CONSTANT = "best constant of the training labels"


def macro_f1(answers: Sequence[str | None], truths: Sequence[AbstractSet[str]]) -> float:
    """Return the macro-averaged F1 over the classes that occur; NaN without episodes.

    An answer to an episode with several classes matches at most one of them.

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
        hits = sum(a == name and name in t for a, t in zip(answers, truths, strict=True))
        scores.append(2 * hits / (sum(a == name for a in answers) + sum(name in t for t in truths)))
    return sum(scores) / len(scores) if scores else math.nan


def best_constant(training: Sequence[Pair]) -> Pair | None:
    """Return the most frequent pair of the training labels; of equally frequent ones, the first in the alphabet."""
    counts = Counter(training)
    return min(counts, key=lambda pair: (-counts[pair], pair)) if counts else None


def read_pair(row: ResultRow) -> tuple[str | None, str | None]:
    """Return the system level and fault type that a row names."""
    if row.status != "ok":
        return None, None
    return row.answer.get("system_level"), row.answer.get("fault_type")


def _get_right_names(truth: Truth, position: int) -> frozenset[str]:
    """Return the right system levels (position 0) or fault types (1)."""
    return frozenset(pair[position] for pair in truth.diagnoses)


def _score_joint(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair in truth.diagnoses)


def _score_level(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair[0] in _get_right_names(truth, 0))


def _score_type(pair: tuple[str | None, str | None], truth: Truth) -> float:
    return float(pair[1] in _get_right_names(truth, 1))


def _declare_share(name: str, score: Callable[[tuple[str | None, str | None], Truth], float], meaning: str) -> Metric:
    """Declare a share computed from the answered pair; guessing is the best constant pair of each fold."""

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
        compute=lambda row: score(read_pair(row), row.truth),
        guess=guess,
    )


def _declare_macro_f1(name: str, title: str, position: int, meaning: str) -> Metric:
    """Declare the macro-F1 of levels or types, without an interval because clusters differ in their classes."""

    def aggregate(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate:
        truths = [_get_right_names(case.truth, position) for case in cases]
        seeds = min((len(case.rows) for case in cases), default=0)
        values = [macro_f1([read_pair(case.rows[i])[position] for case in cases], truths) for i in range(seeds)]
        value = float(np.mean(values)) if values else math.nan
        return Estimate(value=value, n=len(cases), reason="no interval: clusters differ in their classes")

    def guess(metric: Metric, cases: Sequence[ScoredCase]) -> Estimate | None:
        labels = [case.rows[0].majority_label for case in cases]
        if not any(labels):
            return None
        constant = [None if label is None else label[position] for label in labels]
        value = macro_f1(constant, [_get_right_names(case.truth, position) for case in cases])
        return Estimate(value=value, n=len(cases), method=_BEST_CONSTANT)

    return Metric(name=name, title=title, unit="share", task="rca", meaning=meaning, aggregate=aggregate, guess=guess)


def _score_pairs(row: ResultRow) -> SetScore:
    """Compare the answered pair with the pairs of all faults."""
    pair = read_pair(row)
    answer = frozenset() if pair == (None, None) else frozenset({pair})
    return score_set(answer, row.truth.diagnoses)


def _declare_set_score(name: str, title: str, extract: Callable[[SetScore], float], meaning: str) -> Metric:
    return Metric(
        name=name,
        title=title,
        unit="share",
        task="rca",
        headline=False,
        meaning=meaning,
        compute=lambda row: extract(_score_pairs(row)),
    )


JOINT = _declare_share(
    "joint",
    _score_joint,
    "system level and fault type are both right; with several faults both must belong to the same fault",
)
LEVEL = _declare_share("level", _score_level, "the system level is right")
TYPE = _declare_share("type", _score_type, "the fault type is right")
PARTS = dataclasses.replace(
    _declare_share(
        "parts",
        lambda pair, truth: (_score_level(pair, truth) + _score_type(pair, truth)) / 2,
        "mean of level and type: each counts as half an episode",
    ),
    of_case=lambda case: (case.value(LEVEL) + case.value(TYPE)) / 2,
)
ANSWERED = Metric(
    name="answered",
    title="answered",
    unit="share",
    task="rca",
    headline=False,
    meaning="share of episodes with an answered level or type",
    compute=lambda row: read_pair(row) != (None, None),
)

DIAGNOSIS_METRICS = (
    JOINT,
    *limit_evidence(JOINT),
    PARTS,
    LEVEL,
    TYPE,
    _declare_macro_f1("macro_f1_level", "macro-F1 level", 0, "mean F1 over the system levels that occur"),
    _declare_macro_f1("macro_f1_type", "macro-F1 type", 1, "mean F1 over the fault types that occur"),
    Metric(
        name="time_to_diagnose_median",
        title="median time to diagnose",
        unit="s",
        better="lower",
        task="rca",
        headline=False,
        shown_second="if known",
        meaning="median seconds from the onset to the end of the shortest --evidence view such that level and "
        "type are right in it and in all longer views; computing time is not included, and a miss is infinite",
        of_case=lambda case: case.seen_s,
        aggregate=median,
        unscored="methods were not run with less evidence; add --evidence",
    ),
    Metric(
        name="joint_answered",
        title="joint answered",
        unit="share",
        task="rca",
        headline=False,
        shown_second="if fewer episodes",
        meaning="joint over answered episodes only",
        brief=True,
        of_case=lambda case: case.value(JOINT) if case.value(ANSWERED) else math.nan,
    ),
    ANSWERED,
    Metric(
        name="correct_abstentions",
        title="correct abstentions",
        unit="share",
        task="rca",
        headline=False,
        meaning="share of no-fault episodes without an alarm or with an empty answer",
        episodes="no fault",
        compute=names_nothing,
    ),
    _declare_set_score(
        "diagnosis_f1",
        "diagnosis F1",
        lambda score: score.f1,
        "F1 of the answered pair of level and type against the pairs of all faults",
    ),
    _declare_set_score(
        "exact_diagnosis",
        "exact diagnosis",
        lambda score: float(score.exact),
        "the answered level and type are correct for every fault",
    ),
)
