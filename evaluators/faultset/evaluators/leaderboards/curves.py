"""Curves: how well localizers do when the alarm comes later, and when they see more of what follows it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from faultset.evaluators.leaderboards.localization import LocalizationFacts, localization_facts
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, CurvePoint, is_headline
from faultset.evaluators.results.rows import ResultRow
from faultset.evaluators.statistics.clusters import clustered_mean

_PLACES: Mapping[str, tuple[str, Callable[[ResultRow], float | None]]] = {
    "delay": ("delayed", lambda row: row.delay_s),
    "evidence": ("evidence", lambda row: row.evidence_s),
}
_RIGHT = 0.5
"""Expected AC@1 from which an episode counts as localized; ties and seeds make fractions."""
_Scored = Mapping[float, Mapping[str, LocalizationFacts]]


def curves_of(rows: Sequence[ResultRow]) -> tuple[Curve, ...]:
    """One curve for each localizer and application, and over all applications where there are several.

    Only headline episodes count. Many seconds are left with fewer episodes, whose fault is seen for longer; beside
    every point stands what the same episodes give with the alarm at the onset and the whole view.
    """
    apps = sorted({row.truth.app for row in rows})
    kinds = {row.baseline: row.kind for row in rows}
    otherwise = _scored([row for row in rows if row.protocol == "oracle"], lambda _: 0.0)
    curves = []
    for over, (protocol, place) in _PLACES.items():
        by = _scored([row for row in rows if row.protocol == protocol], place)
        for app in [*apps, ALL_APPS] if len(apps) > 1 else apps:
            for baseline, scored in sorted(by.items()):
                beside = otherwise.get(baseline, {}).get(0.0, scored.get(0.0, {}) if over == "delay" else {})
                points = [_point(at, scored[at], beside, app) for at in scored]
                points = [point for point in points if point.ac1.n]
                if points:
                    curve = Curve(over=over, baseline=baseline, kind=kinds[baseline], app=app, points=tuple(points))
                    curves.append(curve)
    return tuple(curves)


def times_to_localize(rows: Sequence[ResultRow]) -> dict[str, dict[str, float]]:
    """Return localizer -> episode -> seconds of evidence after the onset from which on the cause stands first.

    It must stay first with every larger budget that was tried; where it does not, the time is infinite.
    """
    found: dict[str, dict[str, float]] = {}
    evidence = [row for row in rows if row.protocol == "evidence"]
    for baseline, scored in _scored(evidence, lambda row: row.evidence_s).items():
        times: dict[str, float] = {}
        for at in sorted(scored, reverse=True):
            for episode, one in scored[at].items():
                settled = times.get(episode)
                if settled is None:
                    times[episode] = at if one.ac1 > _RIGHT else -math.inf
                elif settled > 0 and one.ac1 > _RIGHT and settled == _next(at, scored, episode):
                    times[episode] = at
        found[baseline] = {episode: at if at > 0 else math.inf for episode, at in times.items()}
    return found


def _next(at: float, scored: _Scored, episode: str) -> float:
    """Return the next larger budget of an episode."""
    return min(other for other in scored if other > at and episode in scored[other])


def _scored(
    rows: Sequence[ResultRow], place: Callable[[ResultRow], float | None]
) -> dict[str, dict[float, dict[str, LocalizationFacts]]]:
    """Return localizer -> seconds -> headline episode -> facts."""
    by: dict[str, dict[float, dict[str, list[ResultRow]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        at = place(row)
        if row.task == "localization" and at is not None and row.truth.causes and is_headline(row.truth):
            by[row.baseline][at][row.episode].append(row)
    return {
        baseline: {
            at: {e: localization_facts(found) for e, found in sorted(episodes.items())}
            for at, episodes in sorted(places.items())
        }
        for baseline, places in by.items()
    }


def _point(
    at: float, scored: Mapping[str, LocalizationFacts], beside: Mapping[str, LocalizationFacts], app: str
) -> CurvePoint:
    here = {e: one for e, one in scored.items() if app in (ALL_APPS, one.truth.app)}
    keys = [one.truth.cluster for one in here.values()]
    others = [beside[e].ac1 for e in here if e in beside]
    return CurvePoint(
        at_s=at,
        ac1=clustered_mean([one.ac1 for one in here.values()], keys),
        avg5=clustered_mean([one.avg5 for one in here.values()], keys),
        ac1_otherwise=float(np.mean(others)) if others else math.nan,
    )
