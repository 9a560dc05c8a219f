"""Threshold policies: rules, fixed before the test, that turn a detector's scores into alarms.

With `reference` every detector sets its threshold itself on the healthy window of each episode. The other policies set
one threshold per detector and fold, from the detector's scores on training episodes without a fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from faultset.core.errors import UsageError, unknown_name

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HealthyScores:
    """Scores of a detector on one training episode without a fault."""

    scores: Scores
    """One score for each sample."""
    hours: float
    """Duration of the samples."""
    consecutive: int = 1
    """Number of consecutive samples above the threshold that raise an alarm."""


class ThresholdPolicy(Protocol):
    """A rule that sets a threshold from healthy training scores."""

    @property
    def name(self) -> str:
        """Name in columns and settings."""
        ...

    @property
    def needs_training(self) -> bool:
        """Whether it reads training episodes."""
        ...

    def threshold(self, training: Sequence[HealthyScores]) -> float:
        """Return the threshold above which a sample is flagged; NaN without scores."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Each detector's threshold from the reference window of the episode."""

    name: str = "reference"
    needs_training: bool = False

    def threshold(self, training: Sequence[HealthyScores]) -> float:
        """Return NaN, because each detector sets its threshold itself."""
        return math.nan


@dataclass(frozen=True, kw_only=True)
class TrainQuantile:
    """A quantile of the scores of healthy training samples."""

    share: float = 0.995
    needs_training: bool = True

    @property
    def name(self) -> str:
        """Name in columns and settings."""
        return f"train-quantile({self.share:g})"

    def threshold(self, training: Sequence[HealthyScores]) -> float:
        """Return the quantile over the samples of all episodes."""
        scores = np.concatenate([episode.scores for episode in training]) if training else np.empty(0)
        return float(np.quantile(scores, self.share)) if len(scores) else math.nan


@dataclass(frozen=True, kw_only=True)
class TrainBudget:
    """The lowest threshold with at most `per_hour` alarms per healthy hour."""

    per_hour: float = 1.0
    needs_training: bool = True

    @property
    def name(self) -> str:
        """Name in columns and settings."""
        return f"train-budget({self.per_hour:g})"

    def threshold(self, training: Sequence[HealthyScores]) -> float:
        """Search the values of the healthy scores for the threshold."""
        hours = sum(episode.hours for episode in training)
        values = np.unique(np.concatenate([episode.scores for episode in training])) if training else np.empty(0)
        if hours <= 0 or not len(values):
            return math.nan
        allowed = self.per_hour * hours
        low, high = 0, len(values) - 1
        # a lower threshold may join runs, so the count is not monotone; `high` keeps the budget or is the maximum
        while low < high:
            middle = (low + high) // 2
            if _count_alarms(training, values[middle]) <= allowed:
                high = middle
            else:
                low = middle + 1
        return float(values[high])


def _count_alarms(training: Sequence[HealthyScores], threshold: float) -> int:
    from faultset.evaluators.scoring.alarms import find_runs

    return sum(b - a >= episode.consecutive for episode in training for a, b in find_runs(episode.scores > threshold))


def choose_policies(names: Sequence[str]) -> list[ThresholdPolicy]:
    """Return the policies with these names; `reference` is always the first.

    Examples
    --------
    >>> [policy.name for policy in choose_policies(["train-budget(2)"])]
    ['reference', 'train-budget(2)']
    """
    policies: list[ThresholdPolicy] = [Reference()]
    for name in names if names else [TrainQuantile().name]:
        if name == "reference":
            continue
        match = re.fullmatch(r"(train-quantile|train-budget)(?:\((\d*\.?\d+)\))?", name)
        if match is None:
            raise unknown_name("threshold policy", name, ["reference", TrainQuantile().name, TrainBudget().name])
        if match[1] == "train-budget":
            policies.append(TrainBudget(per_hour=float(match[2])) if match[2] else TrainBudget())
            continue
        share = float(match[2]) if match[2] else TrainQuantile().share
        if not 0 < share < 1:
            raise UsageError(f"the share of {name} must be between 0 and 1; write for instance train-quantile(0.995)")
        policies.append(TrainQuantile(share=share))
    return policies
