"""A leaderboard on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.formats import columns_of, summary_lines
from faultset.evaluators.leaderboards.records import ALL_APPS, HEADLINE, Entry, Leaderboard, Metric, Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_KIND_STYLE = {"control": "dim", "named": "bold"}


def show(board: Leaderboard, console: Console) -> None:
    """Print the headline tables and what must be known to read them; the files hold the rest."""
    console.print()
    for line in summary_lines(board):
        console.print(line.replace("**", ""), style="yellow" if "quick" in line[:8] else "dim", markup=False)
    for table in board.tables:
        if table.verdict == HEADLINE:
            console.print()
            console.print(_rich(table, console.width))
            if table.note:
                console.print(table.note, style="yellow")
    others = [table for table in board.tables if table.verdict != HEADLINE and table.app != ALL_APPS]
    for table in others:
        console.print(_one_line(table), style="dim", markup=False)
    if board.failures:
        console.print()
        kinds: dict[tuple[str, str], int] = {}
        for failure in board.failures:
            kinds[failure.baseline, failure.status] = kinds.get((failure.baseline, failure.status), 0) + 1
        counted = ", ".join(f"{name}: {n} {status}" for (name, status), n in sorted(kinds.items()))
        console.print(f"{len(board.failures)} rows failed and count as misses ({counted})", style="red", markup=False)


def _rich(table: Table, width: int) -> RichTable:
    from rich.table import Table as RichTable

    shown = _fitting(columns_of(table), width)
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
    rich.add_column("CPU", justify="right", no_wrap=True)
    for entry in table.entries:
        rich.add_row(*_cells(entry, shown), style=_KIND_STYLE.get(entry.kind))
    if table.floor:
        floor = [number_formats.number(table.floor[m.name].value, m) if m.name in table.floor else "" for m in shown]
        rich.add_row("", "guessing", *floor, "", "", style="dim italic")
    return rich


def _fitting(metrics: tuple[Metric, ...], width: int) -> tuple[Metric, ...]:
    """As many columns as fit: name, failures and time take about 40 characters, a value with interval 19."""
    return metrics[: max(2, (width - 40) // 19)]


def _cells(entry: Entry, shown: tuple[Metric, ...]) -> list[str]:
    values = []
    for metric in shown:
        estimate = entry.metrics[metric.name]
        text = number_formats.number(estimate.value, metric)
        bracket = number_formats.interval(estimate, metric)
        values.append(f"{text} [dim]{bracket.replace('[', chr(92) + '[')}[/dim]" if bracket else text)
    failed = sum(n for status, n in entry.failed.items() if status != "no_alarm")
    return [
        str(entry.rank),
        entry.baseline,
        *values,
        str(failed) if failed else "",
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
