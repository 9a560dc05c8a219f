"""Episode-level detection: was there a fault at all? A two by two table and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Episodes by truth and answer; fractions where several seeds of one method disagree about an episode.

    "Positive" is a fault episode, "true" a right answer.
    """

    tp: float
    fp: float
    fn: float
    tn: float

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Confusion:
        """Count (truth, answer) pairs."""
        counts = {(t, a): 0 for t in (True, False) for a in (True, False)}
        for truth, answer in pairs:
            counts[bool(truth), bool(answer)] += 1
        return cls(tp=counts[True, True], fp=counts[False, True], fn=counts[True, False], tn=counts[False, False])

    @property
    def recall(self) -> float:
        """Share of fault episodes answered yes; NaN without fault episodes."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else math.nan

    @property
    def specificity(self) -> float:
        """Share of no-fault episodes answered no; NaN without no-fault episodes."""
        return self.tn / (self.tn + self.fp) if self.tn + self.fp else math.nan

    @property
    def false_positive_rate(self) -> float:
        """Share of no-fault episodes answered yes; NaN without no-fault episodes."""
        return 1.0 - self.specificity

    @property
    def balanced_accuracy(self) -> float:
        """Mean of recall and specificity: one half for every constant answer; NaN when either is."""
        return (self.recall + self.specificity) / 2

    @property
    def accuracy(self) -> float:
        """Share of right answers. Says little: always-yes gets the share of fault episodes."""
        n = self.tp + self.fp + self.fn + self.tn
        return (self.tp + self.tn) / n if n else math.nan

    @property
    def mcc(self) -> float:
        """Matthews correlation; zero when a margin of the table is empty, as for every constant answer."""
        tp, fp, fn, tn = self.tp, self.fp, self.fn, self.tn
        product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
        if tp + fp + fn + tn == 0:
            return math.nan
        return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0
