"""Rows as text in columns, the way kubectl prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_GAP = 3
_NARROWEST = 6
_END_OF_LINE = re.compile(r"[\f\n\r]")


def in_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below a header, or without one when it is empty.

    Every column is as wide as its widest cell with the three blanks behind it, and six characters at least; of a cell
    with several lines the first is shown.

    >>> in_columns(["NAME", "READY"], [["geo", "1/1"]])
    'NAME   READY\\ngeo    1/1'
    """
    lines = [list(header)] if header else []
    lines += [[_cell(value) for value in row] for row in rows]
    if not lines:
        return ""
    widths = [max(_NARROWEST, _GAP + max(map(len, column))) for column in zip(*lines, strict=True)]
    return "\n".join(
        "".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: object) -> str:
    text = "<none>" if value is None else str(value)
    first, *more = _END_OF_LINE.split(text, maxsplit=1)
    return f"{first}..." if more else text
