"""Root cause analysis in AIOpsLab's sense: system level and fault type, alone and together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class DiagnosisScore:
    """Shares of episodes; `joint` (both parts right) is the headline, `parts` what some papers print."""

    joint: float
    level: float
    kind: float
    n: int

    @property
    def parts(self) -> float:
        """Mean of the two parts, each counted as half a case."""
        return (self.level + self.kind) / 2


def score_pairs(answers: Sequence[Pair | None], truths: Sequence[Pair]) -> DiagnosisScore:
    """Compare (system level, fault type) pairs; no answer is a miss in both parts."""
    if len(answers) != len(truths):
        raise ValueError(f"{len(answers)} answers for {len(truths)} episodes")
    n = len(truths)
    if n == 0:
        return DiagnosisScore(joint=math.nan, level=math.nan, kind=math.nan, n=0)
    level = [a is not None and a[0] == t[0] for a, t in zip(answers, truths, strict=True)]
    kind = [a is not None and a[1] == t[1] for a, t in zip(answers, truths, strict=True)]
    joint = [x and y for x, y in zip(level, kind, strict=True)]
    return DiagnosisScore(joint=sum(joint) / n, level=sum(level) / n, kind=sum(kind) / n, n=n)


def macro_f1(answers: Sequence[str | None], truths: Sequence[str]) -> float:
    """Mean F1 over the classes that are there: each counts the same, however rare; NaN without episodes.

    Examples
    --------
    >>> macro_f1(["a", "a", "a", None], ["a", "a", "b", "b"])
    0.4
    """
    if len(answers) != len(truths):
        raise ValueError(f"{len(answers)} answers for {len(truths)} episodes")
    scores = []
    for name in sorted(set(truths)):
        hit = sum(a == t == name for a, t in zip(answers, truths, strict=True))
        scores.append(2 * hit / (sum(a == name for a in answers) + sum(t == name for t in truths)))
    return sum(scores) / len(scores) if scores else math.nan


def best_constant(training: Sequence[Pair]) -> Pair | None:
    """The pair that is most often right on training labels; ties go to the alphabetically first."""
    counts = Counter(training)
    return min(counts, key=lambda pair: (-counts[pair], pair)) if counts else None
