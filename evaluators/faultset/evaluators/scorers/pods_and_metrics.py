"""Scorers of the pods and metrics that a localizer names, on episodes whose truth names some."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.scorers.contract import Metric
from faultset.evaluators.scoring.localization import LocalizationScore, score_ranking
from faultset.evaluators.scoring.metric_rankings import score_metrics

Level = Literal["pod", "metric"]


def score_level(row: ResultRow, level: Level) -> LocalizationScore | None:
    """Score the pods or the metrics that a row names; None where the truth names none."""
    truth, answer = row.truth, row.answer if row.status == "ok" else {}
    if level == "pod":
        if not truth.pod_causes:
            return None
        pods = answer.get("pods") or {}
        return score_ranking(pods, [frozenset({pod}) for pod in truth.pod_causes], list(pods))
    return score_metrics(answer.get("metrics") or (), truth.metric_causes) if truth.metric_causes else None


def _metric(level: Level, name: str, title: str, read: Callable[[LocalizationScore], float]) -> Metric:
    def compute(row: ResultRow) -> float:
        score = score_level(row, level)
        return math.nan if score is None else read(score)

    return Metric(
        name=f"{level}_{name}",
        title=f"{title}, {level}s",
        unit="share",
        task="localization",
        headline=False,
        meaning=f"{title} of the {level}s that the method names, on episodes whose truth names a {level}",
        compute=compute,
        unscored=f"the truth names no {level}s",
    )


POD_AC1 = _metric("pod", "ac1", "AC@1", lambda score: score.ac[1])
POD_AC3 = _metric("pod", "ac3", "AC@3", lambda score: score.ac[3])
POD_AC5 = _metric("pod", "ac5", "AC@5", lambda score: score.ac[5])
POD_MRR = _metric("pod", "mrr", "MRR", lambda score: score.reciprocal_rank)
METRIC_AC1 = _metric("metric", "ac1", "AC@1", lambda score: score.ac[1])
METRIC_AC3 = _metric("metric", "ac3", "AC@3", lambda score: score.ac[3])
METRIC_AC5 = _metric("metric", "ac5", "AC@5", lambda score: score.ac[5])
METRIC_MRR = _metric("metric", "mrr", "MRR", lambda score: score.reciprocal_rank)
