"""A leaderboard on the terminal."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from faultset.core.printable import printable, with_texts
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.agents import KIND_STYLES, agent_grids
from faultset.evaluators.leaderboards.formats import columns_of, head_lines
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, Entry, Failure, Leaderboard, Table
from faultset.evaluators.results.rows import CANNOT, NO_FAILURES, TASKS
from faultset.evaluators.scoring.metrics import Metric

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


_AGENT_COLUMNS = 8
"""Of the columns about agents; leaderboard.md has all."""
_ROWS = 10
"""Most lines of a table."""
_FAILURES = 3
"""Methods and statuses that are named where rows have failed."""
_OF_USERS = ("external", "agent")
_COST_WIDTH = 9
"""Columns that the number of failures and the processor time take, each."""


def show(board: Leaderboard, console: Console) -> None:
    """Print one table for each task, of all applications together, and what must be known to read it."""
    board = with_texts(board, printable, keep=(Metric,))
    for line in head_lines(board):
        console.print(line.replace("**", ""), style="yellow" if "quick" in line[:8] else "dim", markup=False)
    shown = [table for task in TASKS if (table := _first_table(board, task)) is not None]
    left_out: list[str] = []
    for table in shown:
        console.print()
        rich, hidden = _rich(table, console.width)
        console.print(table.title, style="bold", markup=False)
        rows = len(_shown_entries(table))
        first = f", the first {rows} of {len(table.entries)} methods" if rows < len(table.entries) else ""
        console.print(f"{table.header}{first}", style="dim", markup=False)
        console.print(rich)
        console.print(f"{table.standing}. {table.note}".rstrip(), style="bold", markup=False)
        left_out += hidden
    columns = len(set(left_out))
    others = len(board.tables) - len(shown)
    more = [_counted(columns, "more column")] if columns else []
    more += [f"{_counted(others, 'more table')} (by application, verdict and what methods are given)"] if others else []
    console.print(f"leaderboard.md has {', '.join(['all methods', *more])}.", style="dim", markup=False)
    for grid in agent_grids(board.agents):
        console.print()
        console.print(replace(grid, title=f"agents · {grid.title}").rich(_AGENT_COLUMNS))
    if board.failures:
        console.print(_failures(board.failures), style="red", markup=False)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def text_of(board: Leaderboard, width: int) -> str:
    """Return what `show` prints, as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    show(board, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def _first_table(board: Leaderboard, task: str) -> Table | None:
    """Return the table of a task that counts most, with most of what users bring themselves; None without one."""

    def order(table: Table) -> tuple[bool, bool, int, bool]:
        of_users = sum(entry.kind in _OF_USERS for entry in table.entries)
        return table.verdict != HEADLINE, table.app != ALL_APPS, -of_users, table.group != "telemetry"

    return min((table for table in board.tables if table.task == task), key=order, default=None)


def _shown_entries(table: Table) -> list[Entry]:
    """Return the first rows of a table, among them what users bring themselves and the strongest control."""
    first = sorted(
        table.entries,
        key=lambda entry: (entry.baseline != table.strongest_control, entry.kind not in _OF_USERS),
    )[: _ROWS - bool(table.floor)]
    return [entry for entry in table.entries if entry in first]


def _failures(failures: Sequence[Failure]) -> str:
    counted = Counter((failure.baseline, failure.status) for failure in failures)
    first = [f"{name}: {n} {status}" for (name, status), n in sorted(counted.items())[:_FAILURES]]
    more = [f"{len(counted) - _FAILURES} more"] if len(counted) > _FAILURES else []
    return f"{len(failures)} rows failed and count as misses ({', '.join([*first, *more])})"


def _rich(table: Table, width: int) -> tuple[RichTable, list[str]]:
    """Return the table and the titles of the columns that do not fit."""
    from rich.table import Table as RichTable

    columns, entries = columns_of(table), _shown_entries(table)
    cells = {metric.name: [_value(entry, metric) for entry in entries] for metric in columns}
    shown = _fitting(entries, columns, cells, width)
    hidden = [metric.title for metric in columns if metric not in shown]
    rich = RichTable(box=None, pad_edge=False, header_style="bold")
    rich.add_column("#", justify="right", style="dim")
    rich.add_column("baseline", no_wrap=True)
    for metric in shown:
        rich.add_column(metric.title, justify="right", no_wrap=True)
    rich.add_column("failed", justify="right")
    unanswered = any(CANNOT in entry.failed for entry in entries)
    if unanswered:
        rich.add_column(CANNOT, justify="right")
    rich.add_column("CPU", justify="right", no_wrap=True)
    for i, entry in enumerate(entries):
        values = [cells[metric.name][i] for metric in shown]
        rich.add_row(*_cells(entry, values, unanswered), style=KIND_STYLES.get(entry.kind))
    if table.floor:
        floor = [number_formats.number(table.floor[m.name].value, m) if m.name in table.floor else "" for m in shown]
        rich.add_row("", "guessing", *floor, *[""] * (3 if unanswered else 2), style="dim italic")
    return rich, hidden


def _fitting(
    entries: Sequence[Entry], metrics: tuple[Metric, ...], cells: Mapping[str, Sequence[tuple[str, str]]], width: int
) -> tuple[Metric, ...]:
    """Choose the first column, then the metrics of installed scorers, then as many others from the left as fit."""
    left = width - 8 - max(len("baseline"), *(len(entry.baseline) for entry in entries)) - 2 * _COST_WIDTH
    shown = []
    for metric in sorted(metrics, key=lambda metric: metric is not metrics[0] and not metric.installed):
        left -= 2 + max(len(metric.title), *(len(f"{text} {bracket}".strip()) for text, bracket in cells[metric.name]))
        if left < 0 and shown:
            break
        shown.append(metric)
    return tuple(metric for metric in metrics if metric in shown)


def _value(entry: Entry, metric: Metric) -> tuple[str, str]:
    estimate = entry.metrics[metric.name]
    if metric.name.endswith("_answered"):
        return number_formats.value(estimate, metric), f"n={estimate.n}"
    return number_formats.value(estimate, metric), number_formats.interval(estimate, metric)


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
