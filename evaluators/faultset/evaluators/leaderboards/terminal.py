"""A leaderboard on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from faultset.core.printable import printable, with_texts
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.agents.texts import COLUMNS, TIMES, cells, groups_of
from faultset.evaluators.leaderboards.formats import columns_of, summary_lines
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, AgentLine, Entry, Leaderboard, Table
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES
from faultset.evaluators.scorers.contract import Metric

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_KIND_STYLE = {"control": "dim", "named": "bold"}
_AGENT_COLUMNS = 8
"""Of the columns about agents; leaderboard.md has all."""
_COST_WIDTH = 9
"""Columns that the number of failures and the processor time take, each."""


def show(board: Leaderboard, console: Console) -> None:
    """Print the headline tables and what must be known to read them; the files hold the rest."""
    board = with_texts(board, printable, keep=(Metric,))
    console.print()
    for line in summary_lines(board):
        console.print(line.replace("**", ""), style="yellow" if "quick" in line[:8] else "dim", markup=False)
    for table in board.tables:
        if table.verdict == HEADLINE:
            console.print()
            rich, hidden = _rich(table, console.width)
            console.print(rich)
            if hidden:
                text = f"Not shown in {console.width} columns: {', '.join(hidden)}; leaderboard.md has them."
                console.print(text, style="dim", markup=False)
            if table.note:
                console.print(table.note, style="yellow")
    others = [table for table in board.tables if table.verdict != HEADLINE and table.app != ALL_APPS]
    for table in others:
        console.print(_one_line(table), style="dim", markup=False)
    for title, lines in groups_of(board.agents):
        console.print()
        console.print(_agents(title, lines))
    if board.failures:
        console.print()
        kinds: dict[tuple[str, str], int] = {}
        for failure in board.failures:
            kinds[failure.baseline, failure.status] = kinds.get((failure.baseline, failure.status), 0) + 1
        counted = ", ".join(f"{name}: {n} {status}" for (name, status), n in sorted(kinds.items()))
        console.print(f"{len(board.failures)} rows failed and count as misses ({counted})", style="red", markup=False)


def _agents(title: str, lines: Sequence[AgentLine]) -> RichTable:
    """Return what agents took at one task."""
    from rich.table import Table as RichTable

    rich = RichTable(
        title=f"agents · {title}", title_style="bold", title_justify="left", box=None, pad_edge=False,
        header_style="bold",
    )  # fmt: skip
    for name, _ in COLUMNS[:_AGENT_COLUMNS]:
        own = TIMES[lines[0].task] if name == "time" else name
        rich.add_column(own, justify="left" if name == "agent" else "right", no_wrap=not name.startswith("best"))
    for line in lines:
        values = [text.replace("[", chr(92) + "[") for text in cells(line)[:_AGENT_COLUMNS]]
        rich.add_row(*values, style=_KIND_STYLE.get(line.kind))
    return rich


def _rich(table: Table, width: int) -> tuple[RichTable, list[str]]:
    """Return the table and the titles of the columns that do not fit."""
    from rich.table import Table as RichTable

    columns = columns_of(table)
    cells = {metric.name: [_value(entry, metric) for entry in table.entries] for metric in columns}
    shown = _fitting(table, columns, cells, width)
    hidden = [metric.title for metric in columns if metric not in shown]
    size = f"{table.episodes} fault episodes, {table.clusters} clusters"
    if table.task == "detection":
        size += f", {table.no_fault_episodes} no-fault episodes"
    rich = RichTable(
        title=f"{table.title}\n[dim not bold]{size}[/]",
        title_style="bold",
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    rich.add_column("#", justify="right", style="dim")
    rich.add_column("baseline", no_wrap=True)
    for metric in shown:
        rich.add_column(metric.title, justify="right", no_wrap=True)
    rich.add_column("failed", justify="right")
    unanswered = any(CANNOT in entry.failed for entry in table.entries)
    if unanswered:
        rich.add_column(CANNOT, justify="right")
    rich.add_column("CPU", justify="right", no_wrap=True)
    for i, entry in enumerate(table.entries):
        values = [cells[metric.name][i] for metric in shown]
        rich.add_row(*_cells(entry, values, unanswered), style=_KIND_STYLE.get(entry.kind))
    if table.floor:
        floor = [number_formats.number(table.floor[m.name].value, m) if m.name in table.floor else "" for m in shown]
        rich.add_row("", "guessing", *floor, *[""] * (3 if unanswered else 2), style="dim italic")
    return rich, hidden


def _fitting(
    table: Table, metrics: tuple[Metric, ...], cells: Mapping[str, Sequence[tuple[str, str]]], width: int
) -> tuple[Metric, ...]:
    """Choose the first column, then the metrics of installed scorers, then as many others from the left as fit."""
    left = width - 8 - max(len("baseline"), *(len(entry.baseline) for entry in table.entries)) - 2 * _COST_WIDTH
    shown = []
    for metric in sorted(metrics, key=lambda metric: metric is not metrics[0] and metric.compute is None):
        left -= 2 + max(len(metric.title), *(len(f"{text} {bracket}".strip()) for text, bracket in cells[metric.name]))
        if left < 0 and shown:
            break
        shown.append(metric)
    return tuple(metric for metric in metrics if metric in shown)


def _value(entry: Entry, metric: Metric) -> tuple[str, str]:
    estimate = entry.metrics[metric.name]
    return number_formats.number(estimate.value, metric), number_formats.interval(estimate, metric)


def _cells(entry: Entry, values: Sequence[tuple[str, str]], unanswered: bool) -> list[str]:
    failed = sum(n for status, n in entry.failed.items() if status not in NO_FAILURES)
    marked = [
        f"{text} [dim]{bracket.replace('[', chr(92) + '[')}[/dim]" if bracket else text for text, bracket in values
    ]
    return [
        str(entry.rank),
        entry.baseline,
        *marked,
        str(failed) if failed else "",
        *([str(entry.failed.get(CANNOT, ""))] if unanswered else []),
        number_formats.seconds(entry.seconds),
    ]


def _one_line(table: Table) -> str:
    metric = columns_of(table)[1 if table.task == "detection" else 0]
    best = max(
        table.entries,
        key=lambda entry: (entry.metrics[metric.name].known, entry.metrics[metric.name].value),
    )
    value = number_formats.number(best.metrics[metric.name].value, metric)
    return (
        f"{table.title}: {table.episodes} episodes, highest {metric.title} {value} ({best.baseline}); "
        "full table in the report"
    )
