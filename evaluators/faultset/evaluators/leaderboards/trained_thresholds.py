"""Thresholds from the scores of detectors on training episodes without a fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from faultset.baselines.api.contract import first_alarm
from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.results.stored_answers import StoredAnswer
from faultset.evaluators.scoring.thresholds import HealthyScores, Reference, ThresholdPolicy, TrainQuantile

TOO_FEW = "too few training episodes: the threshold needs no-fault episodes on which the detector was not fitted"
_HOUR_NS = 3600 * SECOND_NS
ModelKey = tuple[str, int, int]
"""Baseline, seed, fold."""


def compute_thresholds(
    rows: Iterable[ResultRow], policies: Sequence[ThresholdPolicy]
) -> Mapping[str, Mapping[ModelKey, float]]:
    """Return thresholds by policy and detector, for policies that read training episodes."""
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

    Returns
    -------
    tuple
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

    Parameters
    ----------
    detectors
        Names of these detectors; all other rows are kept.
    policy
        A policy that reads training episodes.
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
    """Return the answers of detectors with the thresholds of each policy, without detectors that lack a threshold."""
    calibrated = {row.baseline for row in rows if row.protocol == "calibration"}
    detected = [row for row in rows if row.baseline in calibrated]
    by_policy = {}
    for policy in policies:
        changed = [row for row in apply_training_thresholds(detected, calibrated, policy) if row.protocol == "detected"]
        undecided = {row.baseline for row in changed if row.reason == TOO_FEW}
        by_policy[policy.name] = [row for row in changed if row.baseline not in undecided]
    return {policy: of_policy for policy, of_policy in by_policy.items() if of_policy}


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
