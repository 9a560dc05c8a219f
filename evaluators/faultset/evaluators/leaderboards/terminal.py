"""A leaderboard on the terminal."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from faultset.core.printable import count_text, printable, with_texts
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.agents import build_agent_tables
from faultset.evaluators.leaderboards.formats import QUICK_REMARK, head_lines
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, TELEMETRY, Entry, Failure, Leaderboard, Table
from faultset.evaluators.leaderboards.rendering import choose_columns, render_table
from faultset.evaluators.results.rows import TASKS
from faultset.evaluators.scoring.metrics import Metric

if TYPE_CHECKING:
    from rich.console import Console

_MAX_AGENT_COLUMNS = 8
"""Maximum number of columns of agents; leaderboard.md has all."""
_ROWS = ((120, 7), (100, 5), (0, 4))
"""Minimum width of a terminal -> maximum number of lines of a table; sentences take more lines if it is narrow."""
_MAX_FAILURES = 3
"""Maximum number of failures that are named."""
_USER_KINDS = ("external", "agent")


def show(board: Leaderboard, console: Console) -> None:
    """Print a table for each task, over all applications, with the context to read it."""
    board = with_texts(board, printable, keep=(Metric,))
    for line in head_lines(board):
        console.print(line.replace("**", ""), style="yellow" if line is QUICK_REMARK else "dim", markup=False)
    shown = [
        _find_first_table(board.recorded_tables, "detection"),
        *(_find_first_table(board.episode_tables, t) for t in TASKS),
    ]
    shown = [table for table in shown if table is not None]
    hidden: set[str] = set()
    for table in shown:
        hidden |= _show_table(table, board, console)
    others = len(board.tables) - len(shown)
    more = [count_text(len(hidden), "more column")] if hidden else []
    more += (
        [f"{count_text(others, 'more table')} (by application, verdict, faults and input of methods)"] if others else []
    )
    console.print(f"leaderboard.md has {', '.join(['all methods', *more])}.", style="dim", markup=False)
    for agents in build_agent_tables(board.agents):
        console.print()
        fitting = agents.select(range(min(_MAX_AGENT_COLUMNS, len(agents.columns))))
        console.print(replace(fitting, title=f"agents · {agents.title}").rich())
    if board.failures:
        console.print(_describe_failures(board.failures), style="red", markup=False)


def _show_table(table: Table, board: Leaderboard, console: Console) -> set[str]:
    """Print a table; return the titles of the metrics that did not fit."""
    entries = _choose_entries(table, next(rows for width, rows in _ROWS if console.width >= width))
    metrics = choose_columns(table)
    text = render_table(replace(table, entries=tuple(entries)), metrics, kinds=False).fit(console.width)
    suffix = (
        f", the first {len(entries)} of {count_text(len(table.entries), 'method')}"
        if len(entries) < len(table.entries)
        else ""
    )
    console.print()
    console.print(table.title, style="bold", markup=False)
    console.print(f"{table.header}{suffix}", style="dim", markup=False)
    console.print(text.rich())
    closing = [f"{table.standing}." if table.standing else "", table.note]
    console.print(" ".join(filter(None, closing)), style="bold", markup=False)
    for line in filter(None, (_describe_reconstructions(entries), _compare_loudness(table, board))):
        console.print(line, style="dim", markup=False)
    return {metric.title for metric in metrics} - {column.title for column in text.columns}


def _describe_reconstructions(entries: Iterable[Entry]) -> str:
    """Name the reconstructed methods, with their ranges over declared settings."""
    names = [
        f"{entry.baseline} ({entry.range_text})" if entry.settings_range else entry.baseline
        for entry in entries
        if entry.reconstruction or entry.settings_range
    ]
    return f"reconstructions: {', '.join(names)}" if names else ""


def _compare_loudness(table: Table, board: Leaderboard) -> str:
    """Return the best method and the strongest control on gray and on loud faults."""
    parts = []
    for faults in ("gray", "loud"):
        other = next((other for other in board.tables if other.key == (*table.key[:-1], faults)), None)
        if other is not None:
            metric = other.metrics[0]
            scored = [entry for entry in other.entries if entry.metrics[metric.name].known]
            best = [entry for entry in scored if entry.kind != "control"][:1]
            control = [entry for entry in scored if entry.baseline == other.strongest_control]
            values = [
                f"{entry.baseline} {number_formats.number(entry.metrics[metric.name].value, metric)}"
                for entry in (*best, *control)
            ]
            if not values:
                continue
            parts.append(f"{count_text(other.episodes, f'{faults} fault')}: {', control '.join(values)}")
    return "; ".join(parts)


def render_text(board: Leaderboard, width: int) -> str:
    """Return the output of `show` as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    show(board, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rstrip("\n")


def _find_first_table(tables: Sequence[Table], task: str) -> Table | None:
    """Return the most important table of a task; among equals, the table with most of the user's methods."""

    def order(table: Table) -> tuple[bool, bool, bool, int, bool]:
        user_methods = sum(entry.kind in _USER_KINDS for entry in table.entries)
        return (
            table.verdict != HEADLINE,
            table.faults != "all",
            table.app != ALL_APPS,
            -user_methods,
            table.group != TELEMETRY,
        )

    return min((table for table in tables if table.task == task), key=order, default=None)


def _choose_entries(table: Table, rows: int) -> list[Entry]:
    """Return the first rows of a table, including the user's methods and the strongest control."""
    first = sorted(
        table.entries,
        key=lambda entry: (entry.baseline != table.strongest_control, entry.kind not in _USER_KINDS),
    )[: rows - bool(table.floor)]
    return [entry for entry in table.entries if entry in first]


def _describe_failures(failures: Sequence[Failure]) -> str:
    counts = Counter((failure.baseline, failure.status) for failure in failures)
    names = [f"{name}: {n} {status}" for (name, status), n in sorted(counts.items())[:_MAX_FAILURES]]
    more = [f"{len(counts) - _MAX_FAILURES} more"] if len(counts) > _MAX_FAILURES else []
    return f"{count_text(len(failures), 'failed row')} counted as misses ({', '.join([*names, *more])})"
