"""Answers of tools: a text, and a status that distinguishes the kinds of negative answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from faultset.core.errors import suggest
from faultset.datasets.kubectl.printing import format_columns

AnswerStatus = Literal["ok", "empty", "absent", "not_recorded", "refused", "invalid"]
"""Kind of an answer.

- ok: the requested text
- empty: recorded, but without matching rows
- absent: no recorded object has that name
- not_recorded: not part of the recording, which says nothing about the system
- refused: a write or an interactive request
- invalid: a request that cannot be parsed
"""


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer of a tool."""

    status: AnswerStatus
    text: str
    cursor: int | None = None
    """Start of the next page, if there is one."""


UNRECORDED = "<not-recorded>"
"""Placeholder for a field that was not recorded."""


class NegativeAnswer(Exception):
    """A request with a negative answer instead of objects."""

    def __init__(self, answer: ToolAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def answer_ok(text: str, cursor: int | None = None) -> ToolAnswer:
    """Return an answer with the requested text."""
    return ToolAnswer(status="ok", text=text, cursor=cursor)


def answer_empty(reason: str) -> ToolAnswer:
    """Return the answer that no recorded row matches; the reason names the rows and the window."""
    return ToolAnswer(status="empty", text=f"No rows: {reason}.")


def answer_absent(kind: str, name: str, names: Iterable[str]) -> ToolAnswer:
    """Return the answer that a kind has no object of this name; it suggests similar names."""
    return ToolAnswer(status="absent", text=f'Not found: {kind} "{name[:200]}"; {suggest(name, names)}')


def answer_not_recorded(subject: str) -> ToolAnswer:
    """Return the answer that the requested data are not part of the recording."""
    return ToolAnswer(status="not_recorded", text=f"Not recorded: {subject}. This says nothing about the system.")


def answer_refused(reason: str) -> ToolAnswer:
    """Return the answer that a request is not supported."""
    return ToolAnswer(status="refused", text=f"Refused: {reason}.")


def answer_invalid(reason: str) -> ToolAnswer:
    """Return the answer that a request cannot be parsed."""
    return ToolAnswer(status="invalid", text=f"Invalid: {reason}")


_MAX_WIDTH = 400
_MIN_REPEATS = 3


def format_folded_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, repeats_once: bool = False) -> str:
    r"""Return rows in kubectl's columns; cells with several lines are joined, and long ones truncated to 400
    characters.

    Parameters
    ----------
    repeats_once
        Whether columns that have the same cell in all of at least three rows become a line above the table.

    Examples
    --------
    >>> format_folded_table(["NAME", "MESSAGE"], [["geo", "not\nready"]])
    'NAME   MESSAGE\ngeo    not ready'
    >>> format_folded_table(["unit", "value"], [["s", 1], ["s", 2], ["s", 3]], repeats_once=True)
    '# in all rows: unit = s\nvalue\n1\n2\n3'
    """
    cells = [[_fold(value) for value in row] for row in rows]
    if not repeats_once or len(cells) < _MIN_REPEATS:
        return format_columns(header, cells)
    constant = [len(set(column)) == 1 for column in zip(*cells, strict=True)]
    if not any(constant) or all(constant):
        return format_columns(header, cells)
    shared = ", ".join(f"{name} = {cell}" for name, cell, same in zip(header, cells[0], constant, strict=True) if same)
    varying = [column for column, same in enumerate(constant) if not same]
    table = format_columns(
        [header[column] for column in varying], [[row[column] for column in varying] for row in cells]
    )
    return f"# in all rows: {shared}\n{table}"


def _fold(value: object) -> str:
    text = "<none>" if value is None else str(value)
    return " ".join(text.split())[:_MAX_WIDTH] if len(text) > _MAX_WIDTH or len(text.splitlines()) > 1 else text


def format_number(value: float) -> str:
    """Return a number with four significant digits, without an exponent if it is large."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
