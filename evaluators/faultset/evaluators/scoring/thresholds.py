"""Threshold policies: rules, fixed before the test, that turn a detector's scores into alarms.

With `reference` every detector sets its threshold itself on the healthy window of each episode. The other policies set
one threshold per detector and fold, from the detector's scores on training episodes without a fault.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from faultset.baselines.contract import first_alarm
from faultset.core.errors import UsageError, unknown_name
from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow, StoredAnswer

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


TOO_FEW = "too few training episodes: the threshold needs no-fault episodes on which the detector was not fitted"
_HOUR_NS = 3600 * SECOND_NS
ModelKey = tuple[str, int, int]
"""Baseline, seed, fold."""


def compute_thresholds(
    rows: Iterable[ResultRow], policies: Sequence[ThresholdPolicy]
) -> Mapping[str, Mapping[ModelKey, float]]:
    """Return the thresholds of detectors by policy, for policies that read training episodes."""
    training: dict[ModelKey, list[HealthyScores]] = defaultdict(list)
    for row in rows:
        if row.protocol == "calibration" and row.status == "ok" and row.answer.get("consecutive"):
            training[row.baseline, row.seed, row.fold].append(
                HealthyScores(
                    scores=np.asarray(row.answer["scores"], dtype=float),
                    hours=(row.truth.view_end_ns - row.truth.reference_end_ns) / _HOUR_NS,
                    consecutive=row.answer["consecutive"],
                )
            )
    return {
        policy.name: {model: policy.threshold(episodes) for model, episodes in sorted(training.items())}
        for policy in policies
        if policy.needs_training
    }


def training_policy(policies: Sequence[ThresholdPolicy]) -> ThresholdPolicy:
    """Return the policy for detectors without a threshold: the first that reads training episodes."""
    return next((policy for policy in policies if policy.needs_training), TrainQuantile())


def apply_one_rule(
    rows: Sequence[ResultRow], policies: Sequence[ThresholdPolicy]
) -> tuple[Sequence[ResultRow], Mapping[str, Sequence[ResultRow]], str]:
    """Set the thresholds of all detectors by one rule, so that tables compare methods and not rules.

    The rule is `reference` if every detector sets its threshold itself. If one of them needs a threshold from training
    episodes, all get such a threshold. Alarms without scores are kept. The name of the rule lists detectors that were
    not run on training episodes.

    All rows; detector -> its rows with its own threshold, if the rule changed them; the name of the rule.
    """
    detectors: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.task == "detection" and row.protocol == "detected":
            detectors[row.baseline].append(row)
    trained = {name for name, answers in detectors.items() if "threshold" in answers[0].needs}
    if not trained:
        return rows, {}, Reference().name
    scored = {name for name, answers in detectors.items() if any(row.answer.get("consecutive") for row in answers)}
    calibrated = {row.baseline for row in rows if row.protocol == "calibration"}
    policy = training_policy(policies)
    own_rows = {name: detectors[name] for name in sorted((scored & calibrated) - trained)}
    others = sorted(scored - trained - calibrated)
    rule = policy.name + (f" (of {', '.join(others)}: {Reference().name})" if others else "")
    return apply_training_thresholds(rows, own_rows.keys() | (trained & calibrated), policy), own_rows, rule


def apply_training_thresholds(
    rows: Iterable[ResultRow], detectors: Collection[str], policy: ThresholdPolicy
) -> list[ResultRow]:
    """Apply the thresholds of a policy to some detectors, and recompute their alarms.

    `detectors`: names of these detectors; all other rows are kept.
    `policy`: a policy that reads training episodes.
    """
    rows = list(rows)
    thresholds = compute_thresholds((row for row in rows if row.baseline in detectors), [policy])[policy.name]
    return [
        _apply_threshold(row, thresholds.get((row.baseline, row.seed, row.fold), np.nan))
        if row.baseline in detectors and row.protocol in ("detected", "evidence") and row.status == "ok"
        else row
        for row in rows
    ]


def apply_policies(rows: Sequence[ResultRow], policies: Sequence[ThresholdPolicy]) -> dict[str, list[ResultRow]]:
    """Return the answers of detectors with each policy's thresholds, if the detectors have such a threshold."""
    calibrated = {row.baseline for row in rows if row.protocol == "calibration"}
    detected = [row for row in rows if row.baseline in calibrated]
    by_policy = {}
    for policy in policies:
        changed = [row for row in apply_training_thresholds(detected, calibrated, policy) if row.protocol == "detected"]
        undecided = {row.baseline for row in changed if row.reason == TOO_FEW}
        by_policy[policy.name] = [row for row in changed if row.baseline not in undecided]
    return {policy: answers for policy, answers in by_policy.items() if answers}


def _apply_threshold(row: ResultRow, threshold: float) -> ResultRow:
    if not np.isfinite(threshold):
        return replace(row, status="invalid", reason=TOO_FEW, alarm_ns=None)
    flags = np.asarray(row.answer["scores"], dtype=float) > threshold
    consecutive = row.answer.get("consecutive") or 1
    answer = {
        **row.answer,
        "flags": "".join("01"[int(flag)] for flag in flags),
        "threshold": float(threshold),
        "consecutive": consecutive,
    }
    alarm_ns = first_alarm(np.asarray(row.answer["times_ns"], dtype=np.int64), flags, consecutive)
    return replace(row, alarm_ns=alarm_ns, answer=StoredAnswer.of(answer))
