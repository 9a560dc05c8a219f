"""Time to detect, and how often methods are right as the alarm comes later or less is seen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, Table, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.reports.episode_difficulty import episode_title
from faultset.evaluators.reports.method_cards import top_methods
from faultset.evaluators.scoring.detection import alarm_facts, window_s
from faultset.evaluators.scoring.metrics import Metric

CURVES_DRAWN = 6
TIPS_UP_TO = 60
"""Faults of a table up to which every dot says what it is."""
_HEIGHT, _LINE = 280.0, 15.0
"""Pixels of the chart and of a name beside it."""


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Times from onset to the first true alarm of one detector, one dot for each fault episode."""

    name: str
    kind: str
    dots: tuple[tuple[float, str], ...]
    missed: int
    n: int
    median: str


@dataclass(frozen=True, kw_only=True)
class TimesToDetect:
    """All detectors of a table on one axis of seconds."""

    shown: tuple[Delays, ...]
    folded: tuple[Delays, ...]
    ticks: tuple[tuple[float, str], ...]


def times_to_detect(scores: EpisodeScores, table: Table) -> TimesToDetect | None:
    """Dots on a common axis; None without a fault whose onset is known."""
    metric = Metric(name="", title="", unit="s")
    found: dict[str, list[tuple[float, str]]] = {}
    counts: dict[str, int] = {}
    longest = 1.0
    for entry in table.entries:
        delays = [
            (alarm_facts(case).delay_s, case.truth)
            for case in scores.cases[Setting(table.task, table.protocol)][entry.baseline].values()
            if is_headline(case.truth) and case.truth.onset_ns is not None and table.app in (ALL_APPS, case.truth.app)
        ]
        longest = max([longest, *(window_s(truth) for _, truth in delays)])
        counts[entry.baseline] = len(delays)
        found[entry.baseline] = sorted(
            (delay_s, episode_title(truth) + f": {delay_s:.1f} s" if len(delays) <= TIPS_UP_TO else "")
            for delay_s, truth in delays
            if math.isfinite(delay_s)
        )
    if not any(counts.values()):
        return None
    kinds = {entry.baseline: entry.kind for entry in table.entries}
    lines = {
        entry.baseline: Delays(
            name=entry.baseline,
            kind=entry.kind,
            dots=tuple((round(min(100.0, 100 * delay / longest), 2), tip) for delay, tip in found[entry.baseline]),
            missed=counts[entry.baseline] - len(found[entry.baseline]),
            n=counts[entry.baseline],
            median=number_formats.number(entry.metrics["ttd_median"].value, metric),
        )
        for entry in table.entries
    }
    shown, folded = top_methods(list(lines), kinds)
    return TimesToDetect(
        shown=tuple(lines[name] for name in shown),
        folded=tuple(lines[name] for name in folded),
        ticks=tuple((25 * i, f"{longest * i / 4:.0f} s") for i in range(5)),
    )


@dataclass(frozen=True, kw_only=True)
class DrawnCurve:
    """One line in a box of 100 by 100, y downwards, and where its name stands."""

    name: str
    kind: str
    points: str
    dots: tuple[tuple[float, float, str], ...]
    label_y: float
    colour: int
    """Number of a colour; 0 for controls."""
    dashed: bool


@dataclass(frozen=True, kw_only=True)
class CurveChart:
    """How often some methods are right over the delay of the alarm or the evidence seen, and all of them as a table."""

    title: str
    since: str
    over: str
    app: str
    delays: tuple[tuple[float, str, int], ...]
    """(place, seconds, episodes)."""
    curves: tuple[DrawnCurve, ...]
    columns: tuple[str, ...]
    """All delays in seconds, also those that few episodes reach."""
    rows: tuple[tuple[str, str, tuple[tuple[float | None, str, str], ...]], ...]
    """(method, kind, cells); a cell is value, text and tip."""


def curve_charts(curves: Sequence[Curve]) -> tuple[CurveChart, ...]:
    """One chart for each application whose faults are seen long enough for two points."""
    charts = []
    for title, since, app in dict.fromkeys((curve.title, curve.since, curve.app) for curve in curves):
        own = [curve for curve in curves if (curve.title, curve.since, curve.app) == (title, since, app)]
        delays = sorted({point.at_s for curve in own for point in curve.points})
        if len(delays) > 1:
            charts.append(_chart(own, delays))
    return tuple(charts)


def _chart(curves: Sequence[Curve], every: Sequence[float]) -> CurveChart:
    episodes = {delay: max(p.right.n for c in curves for p in c.points if p.at_s == delay) for delay in every}
    # the last points of few episodes jump about and say nothing
    delays = [delay for delay in every if 2 * episodes[delay] >= max(episodes.values())]
    place = {delay: round(4 + 92 * i / max(1, len(delays) - 1), 2) for i, delay in enumerate(delays)}
    ordered = sorted(curves, key=lambda curve: (-_mean(curve), curve.baseline))
    kinds = {curve.baseline: curve.kind for curve in ordered}
    names = list(kinds)
    chosen = {*[n for n in names if kinds[n] != "control"][: CURVES_DRAWN - 1]}
    chosen |= {*[n for n in names if kinds[n] == "control"][:1]}
    drawn = [(curve, [p for p in curve.points if p.at_s in place]) for curve in ordered if curve.baseline in chosen]
    drawn = [(curve, points) for curve, points in drawn if points]
    heights = _spread([100 - 100 * points[-1].right.value for _, points in drawn])
    colours = {name: i for i, name in enumerate((n for n in names if n in chosen and kinds[n] != "control"), start=1)}
    return CurveChart(
        title=curves[0].title,
        since=curves[0].since,
        over=curves[0].over,
        app=curves[0].app,
        delays=tuple((place[delay], f"{delay:g}", episodes[delay]) for delay in delays),
        curves=tuple(
            DrawnCurve(
                name=curve.baseline,
                kind=curve.kind,
                points=" ".join(f"{place[p.at_s]},{100 - 100 * p.right.value:.1f}" for p in points),
                dots=tuple(
                    (place[p.at_s], round(100 * p.right.value, 1), _tip(curve, i)) for i, p in enumerate(points)
                ),
                label_y=height,
                colour=colours.get(curve.baseline, 0),
                dashed=curve.kind == "control",
            )
            for (curve, points), height in zip(drawn, heights, strict=True)
        ),
        columns=tuple(f"{delay:g}" for delay in every),
        rows=tuple((curve.baseline, curve.kind, _cells(curve, every)) for curve in ordered),
    )


def _mean(curve: Curve) -> float:
    return sum(point.right.value for point in curve.points) / len(curve.points)


def _tip(curve: Curve, i: int) -> str:
    point = curve.points[i]
    text = f"{curve.baseline}, {point.at_s:g} s: {point.right.value:.2f} on {point.right.n} episodes"
    if not math.isnan(point.right_otherwise):
        text += f"; the same episodes, alarm not delayed and all of the view, {point.right_otherwise:.2f}"
    return text


def _cells(curve: Curve, delays: Sequence[float]) -> tuple[tuple[float | None, str, str], ...]:
    at: Mapping[float, int] = {point.at_s: i for i, point in enumerate(curve.points)}
    return tuple(
        (curve.points[at[delay]].right.value, f"{curve.points[at[delay]].right.value:.2f}", _tip(curve, at[delay]))
        if delay in at
        else (None, "", f"{curve.baseline} has no episode with {delay:g} s")
        for delay in delays
    )


def _spread(heights: Sequence[float]) -> list[float]:
    """Move names apart that would cover each other, downwards first, then up from the bottom."""
    least = 100 * _LINE / _HEIGHT
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for before, i in itertools.pairwise(order):
        placed[i] = max(placed[i], placed[before] + least)
    ceiling = 100.0
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - least
    return [round(value, 2) for value in placed]
