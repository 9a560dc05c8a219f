"""Labels of training episodes, and the majority label as the floor."""

from __future__ import annotations

from collections.abc import Sequence

from faultset.evaluators.execution.runners.messages import TrainingLabel
from faultset.evaluators.execution.settings import EvaluationScope
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.diagnosis import best_constant


def labels_of(truth: Truth) -> tuple[TrainingLabel, ...]:
    """Return the label of a training episode as baselines that need labels are given it, one for each of its faults."""
    causes = tuple(names[0] for names in truth.causes)
    if not truth.faults:
        first = next(iter(causes), None)
        return (TrainingLabel(first, truth.system_level, truth.fault_type, causes, truth.onset_ns),)
    labels = []
    for one in truth.faults:
        first = next((names[0] for names in truth.causes if one.target in names), None)
        ordered = tuple(sorted(causes, key=lambda name, first=first: name != first))
        labels.append(TrainingLabel(first, one.system_level, one.fault_type, ordered, truth.onset_ns))
    return tuple(labels)


def majority_labels(scope: EvaluationScope) -> dict[int, tuple[str, str]]:
    """Return fold -> level and type that its training labels most often have together."""
    learned = {
        fold.number: [scope.truths[episode] for episode in (*fold.faulty_train, *fold.healthy_train)]
        for fold in scope.folds
    }
    return {number: label for number, truths in learned.items() if (label := majority_label_of(truths)) is not None}


def majority_label_of(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the level and type that training labels most often have together; every fault of an episode counts."""
    labels = [label for truth in truths for label in labels_of(truth)]
    return best_constant([(one.system_level, one.fault_type) for one in labels if one.system_level and one.fault_type])
