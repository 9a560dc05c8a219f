"""Rows as text in columns, the way kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GAP = 3
_WIDEST = 400


def in_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below a header; every column is as wide as its widest cell, and three blanks are between them.

    >>> in_columns(["NAME", "READY"], [["geo", "1/1"]])
    'NAME   READY\\ngeo    1/1'
    """
    lines = [list(header)] if header else []
    lines += [[cell(value) for value in row] for row in rows]
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) + _GAP for i in range(len(lines[0]))]
    return "\n".join(
        "".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def cell(value: object) -> str:
    """Return a value on one line."""
    text = "<none>" if value is None else str(value)
    return " ".join(text.split())[:_WIDEST] if len(text) > _WIDEST or "\n" in text else text


def number(value: float) -> str:
    """Return a number with four significant digits and without an exponent where that is short."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
