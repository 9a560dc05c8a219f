"""Print the results of commands: tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from faultset.core.printable import printable

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
"""The option `--json`; its parameter is called `as_json`."""
_PIPE_WIDTH = 1000


def escape_unencodable() -> None:
    """Make stdout and stderr print escape codes for characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show_records(
    records: Iterable[Mapping[str, Any]],
    *,
    columns: Mapping[str, str] | Sequence[str],
    as_json: bool = False,
    title: str | None = None,
    wrap_at: int | None = None,
) -> None:
    """Print records as a table, or as a JSON list with `as_json`.

    Parameters
    ----------
    records
        One mapping per row. The table shows `columns`, JSON shows everything.
    columns
        Keys to show, or key -> heading.
    as_json
        Value of `json_option`.
    title
        Line above the table.
    wrap_at
        Width in characters at which cells wrap when the output is not a terminal; by default they do not wrap.
    """
    if as_json:
        show_json(list(records))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    headings = columns if isinstance(columns, Mapping) else {key: key for key in columns}
    rows = list(records)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for key, heading in headings.items():
        numeric = bool(rows) and all(isinstance(row.get(key), int | float | None) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_format_cell(row.get(key))) for key in headings))
    terminal = Console(file=sys.stdout, highlight=False)
    width = wrap_at or _PIPE_WIDTH
    console = terminal if terminal.is_terminal else Console(file=sys.stdout, highlight=False, width=width)
    console.print(table)


def show_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, default=str))


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(printable(str(item)) for item in value)
    return printable(str(value))
