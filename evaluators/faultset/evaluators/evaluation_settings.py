"""The settings of an evaluation, from what was asked for and as reports show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from faultset.core.errors import UsageError
from faultset.core.suggestions import unknown_name
from faultset.evaluators.execution.dataset_source import DatasetSource
from faultset.evaluators.execution.planning.settings import EvaluationSettings
from faultset.evaluators.execution.planning.training_data import TrainingData
from faultset.evaluators.execution.runners.outcomes import RunLimits
from faultset.evaluators.results.provenance import scorer_codes
from faultset.evaluators.results.rows import PROTOCOLS, TASKS
from faultset.evaluators.scoring.thresholds import ThresholdPolicy

DELAYS_S = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
"""The grid "auto": doubling, because the first seconds matter most."""


def budgets_of_evidence(evidence: Literal["auto"] | Sequence[float]) -> tuple[float, ...]:
    budgets = DELAYS_S[1:] if evidence == "auto" else tuple(sorted({float(budget) for budget in evidence}))
    if budgets and not budgets[0] > 0:
        raise UsageError(f"a budget of {budgets[0]:g} s of evidence leaves nothing to see; give seconds above 0")
    return budgets


def alarm_detector(name: str) -> str:
    from faultset.baselines.api.registry import get_baseline

    task = get_baseline(name).task
    if task != "detection":
        raise UsageError(f'"{name}" is for {task} and raises no alarm; name a detector, see "faultset list baselines"')
    return name


LARGEST_SEED = 2**30
"""Libraries of methods take seeds of 31 bits, and methods that draw are asked with several from the given one on."""


def settings_of(
    tasks: Sequence[str],
    protocol: str,
    split: str | None,
    delays: Literal["auto"] | Sequence[float],
    policies: Sequence[ThresholdPolicy],
    seed: int,
    timeout_s: float,
    memory_bytes: int,
) -> EvaluationSettings:
    for task in tasks:
        if task not in TASKS:
            raise unknown_name("task", task, TASKS)
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown_name("protocol", protocol, (*PROTOCOLS, "both"))
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"a seed must be from 0 to {LARGEST_SEED}; give a smaller number")
    if timeout_s <= 0:
        raise UsageError("with a timeout of 0 s no method can answer; give for instance 60 s")
    return EvaluationSettings(
        tasks=tuple(task for task in TASKS if task in tasks),
        protocols=PROTOCOLS if protocol == "both" else (protocol,),
        split=split,
        seed=seed,
        limits=RunLimits(timeout_s=timeout_s, memory_bytes=memory_bytes),
        delays=DELAYS_S if delays == "auto" else tuple(sorted({float(delay) for delay in delays})),
        calibrate=any(policy.needs_training for policy in policies),
    )


def fits_used_again(fits: Sequence[tuple[str, bool]]) -> dict[str, str]:
    """Say which fits of earlier evaluations were used again, for the settings that reports show; nothing for none.

    Parameters
    ----------
    fits
        Baseline of every fit, and whether an earlier evaluation has made it.
    """
    again = Counter(name for name, earlier in fits if earlier)
    if not again:
        return {}
    named = ", ".join(f"{name} {count}" for name, count in sorted(again.items()))
    return {"fits_used_again": f"{again.total()} of {len(fits)} ({named})"}


def _alarm_source(source: DatasetSource, settings: EvaluationSettings) -> str:
    other, count = settings.alarm_without_spans, len(source.without_spans)
    why = f", and by {other} in {count} of {len(source.truths)} episodes, which have no spans" if other else ""
    return f"{settings.alarm_detector}{why}"


def shown_settings(
    source: DatasetSource, settings: EvaluationSettings, training: TrainingData | None
) -> dict[str, object]:
    from faultset.evaluators.reports.provenance import machine

    return {
        "tasks": list(settings.tasks),
        "protocols": list(settings.protocols),
        "delays_s": list(settings.delays),
        "evidence_s": list(settings.evidence),
        "alarm_detector": _alarm_source(source, settings),
        "threshold_policy": "reference",
        "split": settings.split or "cross" if training is None else training.name,
        **({} if training is None else {"train": training.record}),
        "seed": settings.seed,
        "timeout_s": settings.limits.timeout_s,
        "memory_limit_bytes": settings.limits.memory_bytes,
        "cluster_key": "application, fault, target",
        "scorers": scorer_codes(),
        "source": source.url or str(source.folder),
        "machine": machine(),
    }
