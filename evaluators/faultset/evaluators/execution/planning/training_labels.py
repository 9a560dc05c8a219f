"""Training labels: each for diagnosers, in sum for controls, and the majority label as the floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from faultset.evaluators.execution.runners.messages import TrainingLabel, TrainingLabels
from faultset.evaluators.results.truth import Truth
from faultset.evaluators.scoring.diagnosis import best_constant


def label_of(truth: Truth) -> TrainingLabel:
    """Return the label of a training episode as a diagnoser is given it."""
    service = truth.causes[0][0] if truth.causes else None
    return TrainingLabel(service, truth.system_level, truth.fault_type)


def summarize_labels(truths: Sequence[Truth]) -> TrainingLabels:
    """Sum up the labels of training episodes with a fault, for controls."""
    causes = Counter(names[0] for truth in truths for names in truth.causes)
    return TrainingLabels(
        cause_counts=tuple(sorted(causes.items())),
        onset_shares=tuple(
            (truth.onset_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
            for truth in truths
            if truth.onset_ns is not None
        ),
    )


def majority_label_of(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the level and type that training labels most often have together."""
    return best_constant([(t.system_level, t.fault_type) for t in truths if t.system_level and t.fault_type])
