"""Delay curves: how well localizers do when the alarm comes later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from faultset.evaluators.leaderboards.localization import LocalizationFacts, localization_facts
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, CurvePoint, is_headline
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.statistics.clusters import clustered_mean


def curves_of(rows: Sequence[ResultRow]) -> tuple[Curve, ...]:
    """One curve for each localizer and application, and over all applications where there are several.

    Only headline episodes count. Long delays are left with fewer episodes, those whose fault is seen for longer; beside
    every point stands what the same episodes give without a delay.
    """
    by: dict[str, dict[float, dict[str, list[ResultRow]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row.protocol == "delayed" and row.delay_s is not None and row.truth.causes and is_headline(row.truth):
            by[row.baseline][row.delay_s][row.episode].append(row)
    apps = sorted({row.truth.app for row in rows})
    kinds = {row.baseline: row.kind for row in rows}
    curves = []
    for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
        for baseline, delays in sorted(by.items()):
            scored = {
                delay: {e: localization_facts(found) for e, found in sorted(episodes.items())}
                for delay, episodes in sorted(delays.items())
            }
            points = [_point(delay, scored, app) for delay in scored]
            if any(point.ac1.n for point in points):
                points = [point for point in points if point.ac1.n]
                curves.append(Curve(baseline=baseline, kind=kinds[baseline], app=app, points=tuple(points)))
    return tuple(curves)


def _point(delay: float, scored: dict[float, dict[str, LocalizationFacts]], app: str) -> CurvePoint:
    here = {e: one for e, one in scored[delay].items() if app in (ALL_APPS, one.truth.app)}
    keys = [one.truth.cluster for one in here.values()]
    at_onset = [scored[0.0][e].ac1 for e in here if e in scored.get(0.0, {})]
    return CurvePoint(
        delay_s=delay,
        ac1=clustered_mean([one.ac1 for one in here.values()], keys),
        avg5=clustered_mean([one.avg5 for one in here.values()], keys),
        ac1_without_delay=float(np.mean(at_onset)) if at_onset else float("nan"),
    )
