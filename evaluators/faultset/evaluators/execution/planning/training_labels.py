"""Labels of training episodes, and the majority label as the floor."""

from __future__ import annotations

from collections.abc import Sequence

from faultset.evaluators.execution.runners.messages import TrainingLabel
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.diagnosis import best_constant


def label_of(truth: Truth) -> TrainingLabel:
    """Return the label of a training episode as baselines that need labels are given it."""
    causes = tuple(names[0] for names in truth.causes)
    return TrainingLabel(next(iter(causes), None), truth.system_level, truth.fault_type, causes, truth.onset_ns)


def majority_label_of(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the level and type that training labels most often have together."""
    return best_constant([(t.system_level, t.fault_type) for t in truths if t.system_level and t.fault_type])
