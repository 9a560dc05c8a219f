"""A comparison on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultset.core.printable import printable, with_texts
from faultset.evaluators.comparison import formats
from faultset.evaluators.comparison.records import Comparison

if TYPE_CHECKING:
    from rich.console import Console

ROWS_SHOWN = 15


def show(comparison: Comparison, console: Console) -> None:
    """Print the differences of the runs, then the methods whose scores changed."""
    comparison = with_texts(comparison, printable)
    console.print()
    for line in formats.remarks(comparison):
        console.print(line, style="dim", markup=False)
    if not comparison.changes:
        console.print("same data, code, libraries, seeds and settings", style="dim", markup=False)
    for change in comparison.changes:
        style = "yellow" if change.category == "data" else None
        console.print(f"{change.what}: {change.old} → {change.new}", style=style, markup=False)
    for table in comparison.tables:
        console.print()
        console.print(f"[bold]{table.title}[/]\n[dim]{formats.summary(table)}[/]")
        changed = [entry for entry in table.entries if entry.changed]
        if changed:
            text = formats.render_table(table, changed[:ROWS_SHOWN], comparison).select(formats.TERMINAL_COLUMNS)
            console.print(text.rich())
        if len(changed) > ROWS_SHOWN:
            console.print(f"and {len(changed) - ROWS_SHOWN} more in the files", style="dim", markup=False)
