"""Answers of tools: text with a status, and kinds of negative answers that are never confused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from faultset.core.suggestions import suggest
from faultset.datasets.kubectl.printing import in_columns

AnswerStatus = Literal["ok", "empty", "absent", "not_recorded", "refused", "invalid"]
"""ok · empty: recorded, and there was nothing · absent: no object of that name, and all of its kind were recorded ·
not_recorded: the recording does not hold it, which says nothing about the system · refused: a write or something
interactive · invalid: a request that cannot be understood."""


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer of a tool."""

    status: AnswerStatus
    text: str
    cursor: int | None = None
    """Where the next part begins, when there is more."""


UNRECORDED = "<not-recorded>"
"""What stands for a field that was not recorded."""


class NegativeAnswer(Exception):
    """A question that gets a negative answer instead of objects."""

    def __init__(self, answer: ToolAnswer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def found(text: str, cursor: int | None = None) -> ToolAnswer:
    """Return what was asked for."""
    return ToolAnswer(status="ok", text=text, cursor=cursor)


def empty(what: str) -> ToolAnswer:
    """Say that something was recorded and that there was nothing of it; `what` names rows and window."""
    return ToolAnswer(status="empty", text=f"No rows: {what}.")


def absent(what: str, name: str, known: Iterable[str]) -> ToolAnswer:
    """Say that there is no object of a name, and which names are near."""
    near = suggest(name, known)
    return ToolAnswer(status="absent", text=f'Not found: {what} "{name[:200]}"; {near}')


def not_recorded(what: str) -> ToolAnswer:
    """Say that the recording does not hold something."""
    return ToolAnswer(status="not_recorded", text=f"Not recorded: {what}. This says nothing about the system.")


def refused(what: str) -> ToolAnswer:
    """Say that something cannot be done here."""
    return ToolAnswer(status="refused", text=f"Refused: {what}.")


def invalid(what: str) -> ToolAnswer:
    """Say that a request cannot be understood, and what would be."""
    return ToolAnswer(status="invalid", text=f"Invalid: {what}")


_WIDEST = 400


def folded_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""Return rows in kubectl's columns, each cell on one line of at most 400 characters.

    >>> folded_table(["NAME", "MESSAGE"], [["geo", "not\nready"]])
    'NAME   MESSAGE\ngeo    not ready'
    """
    return in_columns(header, ([_folded(value) for value in row] for row in rows))


def _folded(value: object) -> str:
    text = "<none>" if value is None else str(value)
    return " ".join(text.split())[:_WIDEST] if len(text) > _WIDEST or len(text.splitlines()) > 1 else text


def number(value: float) -> str:
    """Return a number with four significant digits and without an exponent where that is short."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
