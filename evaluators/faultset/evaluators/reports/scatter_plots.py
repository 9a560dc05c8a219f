"""Scatter plots with a point for each method, and names next to the points if they fit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from faultset.datasets.tools.toolset import TOOL_NAMES
from faultset.evaluators.leaderboards.agents import amount, percent
from faultset.evaluators.leaderboards.records import (
    ALL_APPS,
    HEADLINE,
    AgentLine,
    Entry,
    Leaderboard,
    Table,
    is_headline,
)
from faultset.evaluators.leaderboards.scores import EpisodeScores, kind_rank
from faultset.evaluators.leaderboards.texts import format_number, format_seconds
from faultset.evaluators.reports.charts import Content

_WIDE, _NARROW = (540.0, 360.0), (290.0, 250.0)
"""Sizes in pixels of a card on a screen and on a phone."""
_LETTER, _LINE, _GAP = 6.7, 15.0, 9.0
_MARGIN = 5.0
_MIN_METHODS = 5
"""Minimum number of methods in a plot of costs."""


def plot_tradeoff(scores: EpisodeScores, table: Table) -> Content | None:
    """Plot the share of detected faults against false alarms per hour, with a line for alarms at random times."""
    points = _list_known_points(table, "false_alarms_per_hour", "event_recall")
    if len(points) < 2:
        return None
    max_rate = max(1.0, *(x for _, x, _ in points))
    locate_x = lambda rate: inset(math.sqrt(min(1.0, rate / max_rate)))  # noqa: E731
    windows = [
        truth.view_end_ns - truth.onset_ns
        for truth in scores.truths.values()
        if truth.onset_ns is not None and is_headline(truth) and table.app in (ALL_APPS, truth.app)
    ]
    line = []
    for step in range(41):
        rate = max_rate * (step / 40) ** 2
        chances = [1 - math.exp(-rate * window / 3.6e12) for window in windows]
        line.append(f"{locate_x(rate):.1f},{100 - inset(sum(chances) / len(chances)):.1f}" if chances else "")
    return {
        "title": "Trade-off",
        "meaning": "top left is best; the dashed line is for alarms at random times",
        "x_title": "false alarms per hour without a fault →",
        "y_title": "↑ faults detected (event recall)",
        "x_ticks": tuple((locate_x(rate), f"{rate:g}") for rate in _round_rates(max_rate)),
        "y_ticks": SHARES,
        "dots": build_dots(
            [(entry, locate_x(x), inset(y)) for entry, x, y in points],
            {entry.baseline: f"detected {y:.0%} of faults, {x:.1f} false alarms per hour" for entry, x, y in points},
        ),
        "chance": " ".join(line) if windows else "",
    }


def plot_cost(table: Table) -> Content | None:
    """Plot the first metric of a table against the processor time of an answer."""
    metric = table.metrics[0]
    points = [
        (entry, entry.seconds, entry.metrics[metric.name].value)
        for entry in table.entries
        if entry.metrics[metric.name].known and entry.seconds > 0
    ]
    if len(points) < _MIN_METHODS:
        return None
    low = math.floor(min(math.log10(x) for _, x, _ in points))
    high = max(low + 1, math.ceil(max(math.log10(x) for _, x, _ in points)))
    locate_x = lambda x: inset((math.log10(x) - low) / (high - low))  # noqa: E731
    floor = table.floor.get(metric.name)
    level = None if floor is None else 100 - inset(floor.value)
    return {
        "title": table.title,
        "meaning": "top left is best: accurate and cheap" + ("; the dashed line is guessing" if floor else ""),
        "x_title": "median processor time of an answer →",
        "y_title": f"↑ {metric.title}",
        "x_ticks": tuple((locate_x(10.0**power), _format_power(power)) for power in range(low, high + 1)),
        "y_ticks": SHARES,
        "dots": build_dots(
            [(entry, locate_x(x), inset(y)) for entry, x, y in points],
            {
                entry.baseline: f"{metric.title} {format_number(y, metric)}, {format_seconds(x)}"
                for entry, x, y in points
            },
        ),
        "chance": "" if level is None else f"0,{level:.1f} 100,{level:.1f}",
    }


def _list_known_points(table: Table, x: str, y: str) -> list[tuple[Entry, float, float]]:
    return [
        (entry, entry.metrics[x].value, entry.metrics[y].value)
        for entry in table.entries
        if entry.metrics[x].known and entry.metrics[y].known
    ]


def inset(share: float) -> float:
    """Return a position in percent, with a margin so that points at the edges remain visible."""
    return round(_MARGIN + (100 - 2 * _MARGIN) * min(1.0, max(0.0, share)), 2)


SHARES = tuple((inset(n / 4), f"{25 * n} %") for n in range(5))


def _round_rates(max_rate: float) -> list[float]:
    chosen: list[float] = [0.0]
    for rate in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000):
        if rate <= max_rate and math.sqrt(rate / max_rate) - math.sqrt(chosen[-1] / max_rate) >= 0.11:
            chosen.append(rate)
    return chosen


def _format_power(power: int) -> str:
    if power >= 0:
        return f"{10**power} s"
    return f"{10 ** (power + 3)} ms" if power >= -3 else f"{10 ** (power + 6)} µs"


def build_dots(points: Sequence[tuple[Entry, float, float]], tips: Mapping[str, str]) -> tuple[Content, ...]:
    """Merge methods at the same position, and name as many points as fit, the highest first."""
    merged: dict[tuple[float, float], list[Entry]] = defaultdict(list)
    for entry, x, y in points:
        merged[round(x, 1), round(y, 1)].append(entry)
    groups = sorted(merged.items(), key=lambda p: (all(e.kind == "control" for e in p[1]), -p[0][1], p[0][0]))
    members = [sorted(entries, key=lambda e: (kind_rank(e.kind), e.rank)) for _, entries in groups]
    labels = [entries[0].baseline + (f" +{len(entries) - 1}" if len(entries) > 1 else "") for entries in members]
    positions = [position for position, _ in groups]
    sides = [_choose_sides(positions, labels, size) for size in (_WIDE, _NARROW)]
    return tuple(
        {
            "names": tuple(entry.baseline for entry in entries),
            "label": label,
            "kind": entries[0].kind,
            "x": x,
            "y": y,
            "wide": wide,
            "narrow": narrow,
            "tip": f"{', '.join(e.baseline for e in entries)}: {tips[entries[0].baseline]}",
        }
        for (x, y), entries, label, wide, narrow in zip(positions, members, labels, *sides, strict=True)
    )


Box = tuple[float, float, float, float]


def _choose_sides(points: Sequence[tuple[float, float]], labels: Sequence[str], size: tuple[float, float]) -> list[str]:
    """Choose for each point a side on which its name overlaps nothing; "" if there is none."""
    width, height = size
    centres = [(x / 100 * width, (100 - y) / 100 * height) for x, y in points]
    occupied: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in centres]
    chosen = []
    for (x, y), label in zip(centres, labels, strict=True):
        length = len(label) * _LETTER
        boxes = {
            "r": (x + _GAP, y - _LINE / 2, x + _GAP + length, y + _LINE / 2),
            "l": (x - _GAP - length, y - _LINE / 2, x - _GAP, y + _LINE / 2),
            "t": (x - length / 2, y - _GAP - _LINE, x + length / 2, y - _GAP),
            "b": (x - length / 2, y + _GAP, x + length / 2, y + _GAP + _LINE),
        }
        side = next((s for s, box in boxes.items() if _is_inside(box, size) and not _overlaps(box, occupied)), "")
        if side:
            occupied.append(boxes[side])
        chosen.append(side)
    return chosen


def _is_inside(box: Box, size: tuple[float, float]) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]


def _overlaps(box: Box, occupied: Sequence[Box]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in occupied)


_FREE_GAP = 0.08
"""Share of the width between methods that cost nothing and the cheapest of the others."""


def summarise_requests(lines: Sequence[AgentLine]) -> list[Content]:
    """Return the requests of each agent, for localization if it was run."""
    first: dict[str, AgentLine] = {}
    for line in sorted(lines, key=lambda line: (line.task != "localization", line.protocol)):
        if line.calls or line.kind == "agent":
            first.setdefault(line.agent, line)
    return [
        {
            "name": line.agent,
            "kind": line.kind,
            "requested": percent(line.cause_requested),
            "observed": percent(line.cause_observed),
            "right": percent(line.pass_1.value),
            "calls": tuple((tool, amount(round(count / max(1, line.runs), 1))) for tool, count in line.calls.items()),
            "never": tuple(tool for tool in TOOL_NAMES if tool not in line.calls),
        }
        for line in sorted(first.values(), key=lambda line: (line.kind != "agent", line.agent))
    ]


def agent_cost_plots(board: Leaderboard) -> list[Content]:
    """Plot accuracy against the cost of a run for each task; algorithms cost nothing."""
    plots = [
        _plot_costs(table, board.agents) for table in board.tables if (table.verdict, table.faults) == (HEADLINE, "all")
    ]
    return [plot for plot in plots if plot is not None]


def _plot_costs(table: Table, lines: Sequence[AgentLine]) -> Content | None:
    by_agent = {line.agent: line for line in lines if (line.task, line.protocol) == (table.task, table.protocol)}
    in_dollars = any(line.cost_usd > 0 for line in by_agent.values())
    costs = {
        name: line.cost_usd if in_dollars else _replace_nan(line.prompt_tokens) + _replace_nan(line.completion_tokens)
        for name, line in by_agent.items()
    }
    paid = [cost for cost in costs.values() if cost > 0]
    if not paid:
        return None
    metric = table.metrics[0]
    low = math.floor(math.log10(min(paid)))
    high = max(low + 1, math.ceil(math.log10(max(paid))))

    def locate_x(cost: float) -> float:
        return inset(0.0 if not cost > 0 else _FREE_GAP + (1 - _FREE_GAP) * (math.log10(cost) - low) / (high - low))

    points = [
        (entry, costs.get(entry.baseline, 0.0), entry.metrics[metric.name].value)
        for entry in table.entries
        if entry.metrics[metric.name].known and not math.isnan(costs.get(entry.baseline, 0.0))
    ]
    tips = {
        entry.baseline: f"{metric.title} {format_number(y, metric)}, {_format_cost(cost, in_dollars)}"
        for entry, cost, y in points
    }
    return {
        "title": table.title,
        "meaning": "top left is best; no method is both cheaper and better than the dashed line",
        "x_title": f"{'US dollars' if in_dollars else 'tokens'} for a run →",
        "y_title": f"↑ {metric.title}",
        "x_ticks": (
            (locate_x(0.0), "0"),
            *((locate_x(10.0**power), f"{10.0**power:,g}") for power in range(low, high + 1)),
        ),
        "y_ticks": SHARES,
        "dots": build_dots([(entry, locate_x(cost), inset(y)) for entry, cost, y in points], tips),
        "chance": _draw_pareto_front([(locate_x(cost), inset(y)) for _, cost, y in points]),
    }


def _draw_pareto_front(points: Sequence[tuple[float, float]]) -> str:
    """Return the Pareto front of points as a line of steps."""
    best, corners = -1.0, []
    for x, y in sorted(points, key=lambda point: (point[0], -point[1])):
        if y > best:
            corners += [(x, best), (x, y)] if best >= 0 else [(x, y)]
            best = y
    corners.append((100.0, best))
    return " ".join(f"{x:.1f},{100 - y:.1f}" for x, y in corners)


def _format_cost(cost: float, in_dollars: bool) -> str:
    if not cost > 0:
        return "no cost"
    return f"{cost:.4f} USD a run" if in_dollars else f"{cost:,.0f} tokens a run"


def _replace_nan(value: float) -> float:
    return 0.0 if math.isnan(value) else value
