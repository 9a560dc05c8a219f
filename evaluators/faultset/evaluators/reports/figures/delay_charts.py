"""Charts of times to detect, and of scores over delays of the alarm and over evidence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultset.core.printable import count_text
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, Table, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.reports.episode_difficulty import episode_title
from faultset.evaluators.reports.method_cards import top_methods
from faultset.evaluators.scoring.detection import alarm_facts
from faultset.evaluators.scoring.metrics import Metric, fault_seen_s

CURVES_DRAWN = 6
TIPS_UP_TO = 60
"""Largest number of faults for which dots have tooltips."""
_HEIGHT, _LINE = 280.0, 15.0
"""Heights of the chart and of a name next to it, in pixels."""


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Times from the onset to the first true alarm of a detector, with a dot for each fault."""

    name: str
    kind: str
    dots: tuple[tuple[float, str], ...]
    missed: int
    n: int
    median: str


@dataclass(frozen=True, kw_only=True)
class TimesToDetect:
    """All detectors of a table on the same axis of seconds."""

    shown: tuple[Delays, ...]
    folded: tuple[Delays, ...]
    ticks: tuple[tuple[float, str], ...]


def times_to_detect(scores: EpisodeScores, table: Table) -> TimesToDetect | None:
    """Return the times of all detectors of a table; None if no fault has a known onset."""
    metric = Metric(name="", title="", unit="s")
    dots: dict[str, list[tuple[float, str]]] = {}
    counts: dict[str, int] = {}
    longest = 1.0
    for entry in table.entries:
        delays = [
            (alarm_facts(case).delay_s, case.truth)
            for case in scores.cases[Setting(table.task, table.protocol)][entry.baseline].values()
            if is_headline(case.truth) and case.truth.onset_ns is not None and table.app in (ALL_APPS, case.truth.app)
        ]
        longest = max([longest, *(fault_seen_s(truth) for _, truth in delays)])
        counts[entry.baseline] = len(delays)
        dots[entry.baseline] = sorted(
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
            dots=tuple((round(min(100.0, 100 * delay / longest), 2), tip) for delay, tip in dots[entry.baseline]),
            missed=counts[entry.baseline] - len(dots[entry.baseline]),
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
    """A line in a box of 100 by 100, with y downwards, and the height of its name."""

    name: str
    kind: str
    points: str
    dots: tuple[tuple[float, float, str], ...]
    label_y: float
    colour: int
    """Number of its colour; 0 for controls."""
    dashed: bool


@dataclass(frozen=True, kw_only=True)
class CurveChart:
    """Curves of some methods over the delay of the alarm or over evidence, and a table of all methods."""

    title: str
    since: str
    over: str
    app: str
    delays: tuple[tuple[float, str, int], ...]
    """(position, seconds, episodes)."""
    curves: tuple[DrawnCurve, ...]
    columns: tuple[str, ...]
    """All delays in seconds, including delays with few episodes."""
    rows: tuple[tuple[str, str, tuple[tuple[float | None, str, str], ...]], ...]
    """(method, kind, cells); a cell is value, text and tooltip."""


def curve_charts(curves: Sequence[Curve]) -> tuple[CurveChart, ...]:
    """Return a chart for each kind of curve and application with two points or more."""
    charts = []
    for title, since, app in dict.fromkeys((curve.title, curve.since, curve.app) for curve in curves):
        chosen = [curve for curve in curves if (curve.title, curve.since, curve.app) == (title, since, app)]
        delays = sorted({point.at_s for curve in chosen for point in curve.points})
        if len(delays) > 1:
            charts.append(_build_chart(chosen, delays))
    return tuple(charts)


def _build_chart(curves: Sequence[Curve], all_delays: Sequence[float]) -> CurveChart:
    episodes = {delay: max(p.right.n for c in curves for p in c.points if p.at_s == delay) for delay in all_delays}
    # points of few episodes are too uncertain to draw
    delays = [delay for delay in all_delays if 2 * episodes[delay] >= max(episodes.values())]
    position = {delay: round(4 + 92 * i / max(1, len(delays) - 1), 2) for i, delay in enumerate(delays)}
    ordered = sorted(curves, key=lambda curve: (-_compute_mean(curve), curve.baseline))
    kinds = {curve.baseline: curve.kind for curve in ordered}
    names = list(kinds)
    chosen = {*[n for n in names if kinds[n] != "control"][: CURVES_DRAWN - 1]}
    chosen |= {*[n for n in names if kinds[n] == "control"][:1]}
    drawn = [(curve, [p for p in curve.points if p.at_s in position]) for curve in ordered if curve.baseline in chosen]
    drawn = [(curve, points) for curve, points in drawn if points]
    heights = _spread_labels([100 - 100 * points[-1].right.value for _, points in drawn])
    colours = {name: i for i, name in enumerate((n for n in names if n in chosen and kinds[n] != "control"), start=1)}
    return CurveChart(
        title=curves[0].title,
        since=curves[0].since,
        over=curves[0].over,
        app=curves[0].app,
        delays=tuple((position[delay], f"{delay:g}", episodes[delay]) for delay in delays),
        curves=tuple(
            DrawnCurve(
                name=curve.baseline,
                kind=curve.kind,
                points=" ".join(f"{position[p.at_s]},{100 - 100 * p.right.value:.1f}" for p in points),
                dots=tuple(
                    (position[p.at_s], round(100 * p.right.value, 1), _format_tip(curve, i))
                    for i, p in enumerate(points)
                ),
                label_y=height,
                colour=colours.get(curve.baseline, 0),
                dashed=curve.kind == "control",
            )
            for (curve, points), height in zip(drawn, heights, strict=True)
        ),
        columns=tuple(f"{delay:g}" for delay in all_delays),
        rows=tuple((curve.baseline, curve.kind, _build_cells(curve, all_delays)) for curve in ordered),
    )


def _compute_mean(curve: Curve) -> float:
    return sum(point.right.value for point in curve.points) / len(curve.points)


def _format_tip(curve: Curve, i: int) -> str:
    point = curve.points[i]
    text = f"{curve.baseline}, {point.at_s:g} s: {point.right.value:.2f} on {count_text(point.right.n, 'episode')}"
    if not math.isnan(point.right_otherwise):
        text += f"; {point.right_otherwise:.2f} on the same episodes with no delay and the whole view"
    return text


def _build_cells(curve: Curve, delays: Sequence[float]) -> tuple[tuple[float | None, str, str], ...]:
    index_by_delay: Mapping[float, int] = {point.at_s: i for i, point in enumerate(curve.points)}
    return tuple(
        (
            curve.points[index_by_delay[delay]].right.value,
            f"{curve.points[index_by_delay[delay]].right.value:.2f}",
            _format_tip(curve, index_by_delay[delay]),
        )
        if delay in index_by_delay
        else (None, "", f"{curve.baseline} has no episode with {delay:g} s")
        for delay in delays
    )


def _spread_labels(heights: Sequence[float]) -> list[float]:
    """Move overlapping names apart, first downwards, then up from the bottom."""
    distance = 100 * _LINE / _HEIGHT
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = list(heights)
    for previous, i in itertools.pairwise(order):
        moved[i] = max(moved[i], moved[previous] + distance)
    ceiling = 100.0
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - distance
    return [round(value, 2) for value in moved]
