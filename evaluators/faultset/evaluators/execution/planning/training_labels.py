"""What is told about training episodes: labels to diagnosers, sums of labels to controls, a constant to the floor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from faultset.evaluators.execution.runners.work import Label, Lessons
from faultset.evaluators.results.rows import Truth
from faultset.evaluators.scoring.diagnosis import best_constant


def label_of(truth: Truth) -> Label:
    """Return what a diagnoser is told about a training episode."""
    service = truth.causes[0][0] if truth.causes else None
    return service, truth.system_level, truth.fault_type


def lessons_of(truths: Sequence[Truth]) -> Lessons:
    """Sum up what controls are told about training episodes."""
    causes = Counter(names[0] for truth in truths for names in truth.causes)
    return Lessons(
        cause_counts=tuple(sorted(causes.items())),
        onset_shares=tuple(
            (truth.onset_ns - truth.view_start_ns) / (truth.view_end_ns - truth.view_start_ns)
            for truth in truths
            if truth.onset_ns is not None
        ),
    )


def most_usual(truths: Sequence[Truth]) -> tuple[str, str] | None:
    """Return the level and type that training labels most often have together."""
    return best_constant([(t.system_level, t.fault_type) for t in truths if t.system_level and t.fault_type])
