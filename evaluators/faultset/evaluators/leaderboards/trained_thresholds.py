"""Thresholds that were set before the test, from the scores of detectors on training episodes without a fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from faultset.core.times import SECOND_NS
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scoring.thresholds import Healthy, ThresholdPolicy

_HOUR_NS = 3600 * SECOND_NS
ModelKey = tuple[str, int, int]
"""Baseline, seed, fold."""


def thresholds_of(
    rows: Iterable[ResultRow], policies: Sequence[ThresholdPolicy]
) -> Mapping[str, Mapping[ModelKey, float]]:
    """Return policy -> detector -> threshold, for policies that look at training episodes."""
    training: dict[ModelKey, list[Healthy]] = defaultdict(list)
    for row in rows:
        if row.protocol == "calibration" and row.status == "ok" and row.answer.get("consecutive"):
            training[row.baseline, row.seed, row.fold].append(
                Healthy(
                    scores=np.asarray(row.answer["scores"], dtype=float),
                    hours=(row.truth.view_end_ns - row.truth.reference_end_ns) / _HOUR_NS,
                    consecutive=row.answer["consecutive"],
                )
            )
    return {
        policy.name: {who: policy.threshold(found) for who, found in sorted(training.items())}
        for policy in policies
        if policy.needs_training
    }
