"""Threshold policies: rules that are fixed before the test by which a detector's scores become alarms.

`reference` is what every detector does by itself: its threshold follows from the healthy window of the episode it looks
at. The others set one threshold per detector and fold from its scores on training episodes without a fault.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Healthy:
    """Scores of a detector on one training episode without a fault."""

    scores: Scores
    """[T] one for each sample."""
    hours: float
    """Time that was watched."""
    consecutive: int = 1
    """Samples in a row above the threshold that raise an alarm."""


class ThresholdPolicy(Protocol):
    """A rule from healthy training scores to a threshold."""

    @property
    def name(self) -> str:
        """How columns that use it are called."""
        ...

    @property
    def needs_training(self) -> bool:
        """Whether it looks at training episodes."""
        ...

    def threshold(self, training: Sequence[Healthy]) -> float:
        """Return the threshold above which a sample is flagged; NaN where there is nothing to set it from."""
        ...


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The detector's own threshold, from the reference window of the episode."""

    name: str = "reference"
    needs_training: bool = False

    def threshold(self, training: Sequence[Healthy]) -> float:
        """Return NaN: there is no common threshold."""
        return math.nan


@dataclass(frozen=True, kw_only=True)
class TrainQuantile:
    """The value that a share of healthy training samples does not exceed."""

    share: float = 0.995
    needs_training: bool = True

    @property
    def name(self) -> str:
        """How columns are called."""
        return f"train-quantile({self.share:g})"

    def threshold(self, training: Sequence[Healthy]) -> float:
        """Return the quantile over the samples of all episodes together."""
        scores = np.concatenate([one.scores for one in training]) if training else np.empty(0)
        return float(np.quantile(scores, self.share)) if len(scores) else math.nan


@dataclass(frozen=True, kw_only=True)
class TrainBudget:
    """The lowest threshold with at most so many alarms per healthy hour."""

    per_hour: float = 1.0
    needs_training: bool = True

    @property
    def name(self) -> str:
        """How columns are called."""
        return f"train-budget({self.per_hour:g})"

    def threshold(self, training: Sequence[Healthy]) -> float:
        """Try the values that healthy scores take, from the highest down."""
        hours = sum(one.hours for one in training)
        values = np.unique(np.concatenate([one.scores for one in training])) if training else np.empty(0)
        if hours <= 0 or not len(values):
            return math.nan
        allowed = self.per_hour * hours
        low, high = 0, len(values) - 1
        # runs of flags may join when a threshold falls, so the count is not monotone: the search keeps what it has seen
        while low < high:
            middle = (low + high) // 2
            if _alarms(training, values[middle]) <= allowed:
                high = middle
            else:
                low = middle + 1
        return float(values[high])


def _alarms(training: Sequence[Healthy], threshold: float) -> int:
    from faultset.evaluators.scoring.alarms import events

    return sum(b - a >= one.consecutive for one in training for a, b in events(one.scores > threshold))


def chosen_policies(names: Sequence[str]) -> list[ThresholdPolicy]:
    """Make policies of their names; `reference` is always among them.

    Examples
    --------
    >>> [policy.name for policy in chosen_policies(["train-budget(2)"])]
    ['reference', 'train-budget(2)']
    """
    made: list[ThresholdPolicy] = [Reference()]
    for name in names if names else [TrainQuantile().name]:
        if name == "reference":
            continue
        match = re.fullmatch(r"(train-quantile|train-budget)(?:\((\d*\.?\d+)\))?", name)
        if match is None:
            raise unknown_name("threshold policy", name, ["reference", TrainQuantile().name, TrainBudget().name])
        if match[1] == "train-budget":
            made.append(TrainBudget(per_hour=float(match[2])) if match[2] else TrainBudget())
            continue
        share = float(match[2]) if match[2] else TrainQuantile().share
        if not 0 < share < 1:
            raise UsageError(f"the share of {name} must lie between 0 and 1, for instance 0.995")
        made.append(TrainQuantile(share=share))
    return made
