"""Figures about agents: accuracy against cost, and what they looked at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from faultset.datasets.tools.toolset import TOOL_NAMES
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.agents.texts import amount, percent
from faultset.evaluators.leaderboards.records import AgentLine, Leaderboard, Table
from faultset.evaluators.reports.figures.scatter_plots import SHARES, ScatterPlot, dots_of, inset

_FREE = 0.08
"""Where what costs nothing stands, as a share of the width."""


@dataclass(frozen=True, kw_only=True)
class AgentLook:
    """What an agent looked at while it located faults."""

    agent: str
    kind: str
    asked: str
    shown: str
    right: str
    calls: tuple[tuple[str, str], ...]
    """Tool, and how often it was called in a run."""
    never: tuple[str, ...]
    """Tools that it never called."""


def agent_looks(lines: Sequence[AgentLine]) -> list[AgentLook]:
    """Return what each agent looked at, in localization where it was asked for that."""
    first: dict[str, AgentLine] = {}
    for line in sorted(lines, key=lambda line: (line.task != "localization", line.protocol)):
        if line.calls or line.kind == "agent":
            first.setdefault(line.agent, line)
    return [
        AgentLook(
            agent=line.agent,
            kind=line.kind,
            asked=percent(line.cause_asked),
            shown=percent(line.cause_shown),
            right=percent(line.pass_1.value),
            calls=tuple((tool, amount(round(count / max(1, line.runs), 1))) for tool, count in line.calls.items()),
            never=tuple(tool for tool in TOOL_NAMES if tool not in line.calls),
        )
        for line in sorted(first.values(), key=lambda line: (line.kind != "agent", line.agent))
    ]


def agent_cost_plots(board: Leaderboard) -> list[ScatterPlot]:
    """Return accuracy against what a run costs, for each task; algorithms and controls cost nothing."""
    plots = [_costs(table, board.agents) for table in board.tables if table.verdict == "manifest"]
    return [plot for plot in plots if plot is not None]


def _costs(table: Table, lines: Sequence[AgentLine]) -> ScatterPlot | None:
    own = {line.agent: line for line in lines if (line.task, line.protocol) == (table.task, table.protocol)}
    dollars = any(line.cost_usd > 0 for line in own.values())
    costs = {
        name: line.cost_usd if dollars else _number(line.prompt_tokens) + _number(line.completion_tokens)
        for name, line in own.items()
    }
    paid = [cost for cost in costs.values() if cost > 0]
    if not paid:
        return None
    metric = table.metrics[0]
    low = math.floor(math.log10(min(paid)))
    high = max(low + 1, math.ceil(math.log10(max(paid))))

    def across(cost: float) -> float:
        return inset(0.0 if not cost > 0 else _FREE + (1 - _FREE) * (math.log10(cost) - low) / (high - low))

    places = [
        (entry, costs.get(entry.baseline, 0.0), entry.metrics[metric.name].value)
        for entry in table.entries
        if entry.metrics[metric.name].known and not math.isnan(costs.get(entry.baseline, 0.0))
    ]
    tips = {
        entry.baseline: f"{metric.title} {number_formats.number(y, metric)}, {_cost_text(cost, dollars)}"
        for entry, cost, y in places
    }
    return ScatterPlot(
        title=table.title,
        meaning="top left is best; along the dashed line nothing is both cheaper and better",
        x_title=f"{'US dollars' if dollars else 'tokens'} for a run →",
        y_title=f"↑ {metric.title}",
        x_ticks=(
            (across(0.0), "0"),
            *((across(10.0**power), f"{10.0**power:,g}") for power in range(low, high + 1)),
        ),
        y_ticks=SHARES,
        dots=dots_of([(entry, across(cost), inset(y)) for entry, cost, y in places], tips),
        chance=_front([(across(cost), inset(y)) for _, cost, y in places]),
    )


def _front(places: Sequence[tuple[float, float]]) -> str:
    """Return the steps above which no point lies to the left."""
    best, points = -1.0, []
    for x, y in sorted(places, key=lambda place: (place[0], -place[1])):
        if y > best:
            points += [(x, best), (x, y)] if best >= 0 else [(x, y)]
            best = y
    points.append((100.0, best))
    return " ".join(f"{x:.1f},{100 - y:.1f}" for x, y in points)


def _cost_text(cost: float, dollars: bool) -> str:
    if not cost > 0:
        return "no cost"
    return f"{cost:.4f} USD a run" if dollars else f"{cost:,.0f} tokens a run"


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value
