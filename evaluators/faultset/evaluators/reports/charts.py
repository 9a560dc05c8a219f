"""Forest plots, matrices of systems, times to detect and curves, as content of templates; positions are in percent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from faultset.core.printable import count_text
from faultset.evaluators.leaderboards.records import ALL_APPS, Curve, Entry, Misses, Table, is_headline
from faultset.evaluators.leaderboards.scores import EpisodeScores, Setting
from faultset.evaluators.leaderboards.texts import NONE, format_counts, format_interval, format_number, format_value
from faultset.evaluators.scoring.detection import alarm_facts
from faultset.evaluators.scoring.intervals import Estimate
from faultset.evaluators.scoring.metrics import Metric, fault_seen_s

Content = dict[str, Any]
"""Content of a part of a page, which its template reads."""


def top_methods(
    names: Sequence[str], kinds: Mapping[str, str], *, methods: int = 10, controls: int = 3
) -> tuple[list[str], list[str]]:
    """Split a ranked list into names that are shown and names that are collapsed.

    The first methods, all methods of the AIOpsLab paper, and the first controls are shown. If only one or two names
    remain, these are shown too.
    """
    non_controls = [name for name in names if kinds[name] != "control"]
    control_names = [name for name in names if kinds[name] == "control"]
    shown = {
        *non_controls[:methods],
        *control_names[:controls],
        *(name for name in non_controls if kinds[name] == "named"),
    }
    tail = [name for name in names if name not in shown]
    if len(tail) <= 2:
        return list(names), []
    return [name for name in names if name in shown], tail


def split_lines(names: Sequence[str], kinds: Mapping[str, str], line: Callable[[str], Any], **counts: int) -> Content:
    """Return the lines of the methods that are shown, and of the collapsed ones."""
    shown, folded = top_methods(names, kinds, **counts)
    return {"shown": [line(name) for name in shown], "folded": [line(name) for name in folded]}


def forest(table: Table, name: str, *, methods: int = 10, controls: int = 3) -> Content:
    """Return the forest plot of a share."""
    metric = next(metric for metric in table.metrics if metric.name == name)
    floor = table.floor.get(name)
    entries = {entry.baseline: entry for entry in table.entries}
    kinds = {entry.baseline: entry.kind for entry in table.entries}
    return {
        "title": metric.title,
        "meaning": metric.meaning,
        "floor": None if floor is None else percent(floor.value),
        "floor_text": "" if floor is None else format_number(floor.value, metric),
        **split_lines(
            list(kinds), kinds, lambda name: _build_bar(entries[name], metric), methods=methods, controls=controls
        ),
    }


def _build_bar(entry: Entry, metric: Metric) -> Content:
    estimate = entry.metrics[metric.name]
    remarks = (format_counts(estimate, metric), estimate.method or estimate.reason)
    return {
        "name": entry.baseline,
        "kind": entry.kind,
        "known": estimate.known,
        "at": percent(estimate.value),
        "low": percent(estimate.low) if estimate.interval_known else None,
        "high": percent(estimate.high) if estimate.interval_known else None,
        "text": format_value(estimate, metric),
        "interval": format_interval(estimate, metric),
        "tip": " · ".join(filter(None, remarks)),
    }


def systems(tables: Sequence[Table], *, methods: int = 10, controls: int = 3) -> Content:
    """Compare the first metric over the tables of several applications; the last table pools them.

    The last column predicts the result on one more system.
    """
    pooled = tables[-1]
    metric = pooled.metrics[0]
    kinds = {entry.baseline: entry.kind for entry in pooled.entries}
    entries = [{entry.baseline: entry for entry in table.entries} for table in tables]
    floors = [table.floor[metric.name].value if metric.name in table.floor else math.nan for table in tables]

    def line(name: str) -> tuple[str, str, list[Content]]:
        estimates = [by_method[name].metrics[metric.name] if name in by_method else None for by_method in entries]
        names = [*(table.app for table in tables), "one more system"]
        cells = zip([*estimates, entries[-1][name].across], names, strict=True)
        return name, kinds[name], [_build_cell(estimate, metric, name, system) for estimate, system in cells]

    return {
        "title": metric.title,
        "columns": [(table.app, table.episodes) for table in tables],
        "floor": [format_number(floor, metric) for floor in floors],
        **split_lines(list(kinds), kinds, line, methods=methods, controls=controls),
    }


def _build_cell(estimate: Estimate | None, metric: Metric, name: str, system: str) -> Content:
    if estimate is None or not estimate.known:
        return {"text": NONE, "interval": "", "value": None, "tip": f"{name} was not scored on {system}"}
    return {
        "text": format_number(estimate.value, metric),
        "interval": format_interval(estimate, metric),
        "value": min(1.0, max(0.0, estimate.value)),
        "tip": f"{name}, {system}: {estimate.method or estimate.reason}",
    }


def first_ranks(misses: Sequence[Misses], protocol: str, kinds: Mapping[str, str]) -> Content:
    """Return how often localizers rank a cause, a symptom or something else first; the best localizer comes first."""
    chosen = [miss for miss in misses if miss.protocol == protocol]
    by_name = {m.baseline: m for m in sorted(chosen, key=lambda m: (-m.hit, -m.symptom, m.baseline))}
    kinds = {name: kinds.get(name, "method") for name in by_name}

    def line(name: str) -> Content:
        miss = by_name[name]
        shares = {"cause": miss.hit, "symptom": miss.symptom, "unrelated": miss.unrelated, "none": miss.none}
        parts = [(answer, round(100 * share, 2), f"{answer} {share:.0%}") for answer, share in shares.items()]
        return {"name": name, "kind": kinds[name], "parts": parts}

    return split_lines(list(by_name), kinds, line)


def percent(value: float) -> float:
    """Return a share in percent; 0 if it is unknown."""
    return 0.0 if math.isnan(value) else round(100 * min(1.0, max(0.0, value)), 2)


TIPS_UP_TO = 60
"""Largest number of faults for which dots have tooltips."""


def times_to_detect(scores: EpisodeScores, table: Table) -> Content | None:
    """Return the seconds from each onset to the first true alarm of all detectors; None without a known onset."""
    by_name = {
        entry.baseline: [
            (alarm_facts(case).delay_s, case.truth)
            for case in scores.cases[Setting(table.task, table.protocol)][entry.baseline].values()
            if is_headline(case.truth) and case.truth.onset_ns is not None and table.app in (ALL_APPS, case.truth.app)
        ]
        for entry in table.entries
    }
    if not any(by_name.values()):
        return None
    longest = max([1.0, *(fault_seen_s(truth) for delays in by_name.values() for _, truth in delays)])
    entries = {entry.baseline: entry for entry in table.entries}

    def line(name: str) -> Content:
        delays = by_name[name]
        dots = sorted(
            (delay_s, f"{truth.title}: {delay_s:.1f} s" if len(delays) <= TIPS_UP_TO else "")
            for delay_s, truth in delays
            if math.isfinite(delay_s)
        )
        return {
            "name": name,
            "kind": entries[name].kind,
            "dots": [(round(min(100.0, 100 * delay / longest), 2), tip) for delay, tip in dots],
            "missed": len(delays) - len(dots),
            "n": len(delays),
            "median": format_number(entries[name].metrics["ttd_median"].value, Metric(name="", title="", unit="s")),
        }

    ticks = [(25 * i, f"{longest * i / 4:.0f} s") for i in range(5)]
    kinds = {name: entry.kind for name, entry in entries.items()}
    return {"ticks": ticks, **split_lines(list(entries), kinds, line)}


CURVES_DRAWN = 6
_HEIGHT, _LINE = 280.0, 15.0
"""Heights of the chart and of a name next to it, in pixels."""


def curve_charts(curves: Sequence[Curve]) -> list[Content]:
    """Return a chart for each kind of curve and application with two points or more."""
    charts = []
    for title, since, app in dict.fromkeys((curve.title, curve.since, curve.app) for curve in curves):
        chosen = [curve for curve in curves if (curve.title, curve.since, curve.app) == (title, since, app)]
        delays = sorted({point.at_s for curve in chosen for point in curve.points})
        if len(delays) > 1:
            charts.append(_build_chart(chosen, delays))
    return charts


def _build_chart(curves: Sequence[Curve], all_delays: Sequence[float]) -> Content:
    """Return the best curves in a box of 100 by 100, with y downwards, and a table of all curves."""
    episodes = {delay: max(p.right.n for c in curves for p in c.points if p.at_s == delay) for delay in all_delays}
    # points of few episodes are too uncertain to draw
    delays = [delay for delay in all_delays if 2 * episodes[delay] >= max(episodes.values())]
    position = {delay: round(4 + 92 * i / max(1, len(delays) - 1), 2) for i, delay in enumerate(delays)}
    means = {c.baseline: sum(point.right.value for point in c.points) / len(c.points) for c in curves}
    ordered = sorted(curves, key=lambda curve: (-means[curve.baseline], curve.baseline))
    kinds = {curve.baseline: curve.kind for curve in ordered}
    best = [name for name in kinds if kinds[name] != "control"][: CURVES_DRAWN - 1]
    chosen = {*best, *[name for name in kinds if kinds[name] == "control"][:1]}
    drawn = [(curve, [p for p in curve.points if p.at_s in position]) for curve in ordered if curve.baseline in chosen]
    drawn = [(curve, points) for curve, points in drawn if points]
    heights = _spread_labels([100 - 100 * points[-1].right.value for _, points in drawn])
    return {
        "title": curves[0].title,
        "since": curves[0].since,
        "over": curves[0].over,
        "app": curves[0].app,
        "delays": [(position[delay], f"{delay:g}", episodes[delay]) for delay in delays],
        "curves": [
            {
                "name": curve.baseline,
                "points": " ".join(f"{position[p.at_s]},{100 - 100 * p.right.value:.1f}" for p in points),
                "dots": [
                    (position[p.at_s], round(100 * p.right.value, 1), _format_tip(curve, i))
                    for i, p in enumerate(points)
                ],
                "label_y": height,
                "colour": best.index(curve.baseline) + 1 if curve.baseline in best else 0,
                "dashed": curve.kind == "control",
            }
            for (curve, points), height in zip(drawn, heights, strict=True)
        ],
        "columns": [f"{delay:g}" for delay in all_delays],
        "rows": [(curve.baseline, curve.kind, _build_cells(curve, all_delays)) for curve in ordered],
    }


def _format_tip(curve: Curve, i: int) -> str:
    point = curve.points[i]
    text = f"{curve.baseline}, {point.at_s:g} s: {point.right.value:.2f} on {count_text(point.right.n, 'episode')}"
    if not math.isnan(point.right_otherwise):
        text += f"; {point.right_otherwise:.2f} on the same episodes with no delay and the whole view"
    return text


def _build_cells(curve: Curve, delays: Sequence[float]) -> list[tuple[float | None, str, str]]:
    """Return value, text and tooltip of a curve at each delay."""
    cells = {
        point.at_s: (point.right.value, f"{point.right.value:.2f}", _format_tip(curve, i))
        for i, point in enumerate(curve.points)
    }
    return [cells.get(delay, (None, "", f"{curve.baseline} has no episode with {delay:g} s")) for delay in delays]


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
