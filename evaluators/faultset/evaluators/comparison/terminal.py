"""A comparison on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.printable import printable, with_texts
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.records import Comparison, PairedTable
from faultset.evaluators.leaderboards import number_formats
from faultset.evaluators.leaderboards.grids import Grid, GridColumn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

ROWS_SHOWN = 15


def show(comparison: Comparison, console: Console) -> None:
    """Print what changed beside the answers, then the methods that were scored otherwise."""
    comparison = with_texts(comparison, printable)
    console.print()
    for line in formats.remarks(comparison):
        console.print(line, style="dim", markup=False)
    if not comparison.changes:
        console.print("same data, code, libraries, seeds and settings", style="dim", markup=False)
    for change in comparison.changes:
        style = "yellow" if change.weight == "data" else None
        console.print(f"{change.what}: {change.old} → {change.new}", style=style, markup=False)
    for table in comparison.tables:
        console.print()
        console.print(f"[bold]{table.title}[/]\n[dim]{formats.summary(table)}[/]")
        if any(entry.changed for entry in table.entries):
            console.print(_rich(table))


def _rich(table: PairedTable) -> RichTable:
    first = table.measures[0]
    changed = [entry for entry in table.entries if entry.changed]
    rows = [
        (
            entry.baseline,
            f"{entry.old[first.name]:.2f}",
            f"{entry.new[first.name]:.2f}",
            formats.difference(entry.differences[first.name]),
            str(len(entry.better)),
            str(len(entry.worse)),
            formats.cost(entry),
            formats.significance(entry) or number_formats.NONE,
        )
        for entry in changed[:ROWS_SHOWN]
    ]
    titles = (f"{first.title} old", "new", "difference", "better", "worse", "CPU", "after Holm")
    columns = (GridColumn(title="method"), *(GridColumn(title=title, justify="right") for title in titles))
    rich = Grid(columns=columns, rows=tuple(rows)).rich()
    if len(changed) > ROWS_SHOWN:
        rich.add_row(f"and {len(changed) - ROWS_SHOWN} more in the files", style="dim")
    return rich
