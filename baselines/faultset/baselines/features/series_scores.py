"""Rankings and evidence from a score for each series."""

from __future__ import annotations

import numpy as np

from faultset.baselines.api.contract import Evidence, Ranking
from faultset.baselines.features.windows import Windows
from faultset.baselines.stats.scaling import Matrix

_MOST_EVIDENCE = 5


def largest_deviations(z: Matrix, windows: Windows, row: int, detail: str) -> tuple[Evidence, ...]:
    """Name the series that deviate most in one row."""
    order = np.argsort(-np.abs(z[row]), kind="stable")[:_MOST_EVIDENCE]
    return tuple(
        Evidence(
            service=windows.series[column][0],
            subject=windows.series[column][1],
            score=float(abs(z[row, column])),
            detail=f"{detail}, {'up' if z[row, column] > 0 else 'down'}"
            if not windows.absent[row, column]
            else "series stopped",
        )
        for column in order
    )


def rank_by_series(
    score: Matrix,
    series: tuple[tuple[str, str], ...],
    services: tuple[str, ...],
    *,
    breadth: float = 0.0,
    detail: str,
    reported: int = 10,
) -> Ranking:
    """Give each service the score of its highest series, plus `breadth` times the mean over its series."""
    columns: dict[str, list[int]] = {}
    for column, (service, _) in enumerate(series):
        columns.setdefault(service, []).append(column)
    scores = {}
    for service in services:
        if service in columns:
            own = score[columns[service]]
            scores[service] = float(own.max() + breadth * own.mean())
    order = sorted(range(len(series)), key=lambda column: (-score[column], series[column]))[:reported]
    evidence = [
        Evidence(service=series[column][0], subject=series[column][1], score=float(score[column]), detail=detail)
        for column in order
    ]
    metrics = dict(zip(series, score.tolist(), strict=True))
    return Ranking.of(scores, services, evidence, metrics)
