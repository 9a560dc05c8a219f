"""Root cause analysis in AIOpsLab's sense: system level and fault type, alone and together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

Pair = tuple[str, str]


def macro_f1(answers: Sequence[str | None], truths: Sequence[AbstractSet[str]]) -> float:
    """Mean F1 over the classes that are there: each counts the same, however rare; NaN without episodes.

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
    """The pair that is most often right on training labels; ties go to the alphabetically first."""
    counts = Counter(training)
    return min(counts, key=lambda pair: (-counts[pair], pair)) if counts else None
