"""Tables of text, for Markdown, the terminal and HTML pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table as RichTable

KIND_STYLES = {"control": "dim", "named": "bold", "floor": "dim italic"}
"""Styles of rows on the terminal."""
_COLUMN_GAP = 2
_MIN_TITLE_WIDTH = 6


@dataclass(frozen=True, kw_only=True)
class TextCell:
    """A text with details that need more space."""

    text: str = ""
    detail: str = ""
    """An interval or a remark."""
    counts: str = ""
    """Counts behind the text; not on the terminal."""
    tip: str = ""
    """A tooltip in pages."""

    def __str__(self) -> str:
        return " ".join(part for part in (self.text, self.detail, self.counts) if part)


@dataclass(frozen=True, kw_only=True)
class TextColumn:
    """A column of texts."""

    title: str
    meaning: str = ""
    justify: Literal["left", "right"] = "left"
    wraps: bool = False
    """Whether the terminal may wrap its cells."""
    brief: bool = False
    """Whether the terminal omits the details of its cells."""
    essential: bool = False
    """Whether the terminal shows it before all others."""


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """Rows of cells below titled columns."""

    columns: tuple[TextColumn, ...]
    rows: tuple[tuple[TextCell, ...], ...]
    kinds: tuple[str, ...] = ()
    """Kind of each row, which sets its style: the kind of the method, or "floor"."""
    title: str = ""

    @classmethod
    def of(cls, titles: Iterable[str], rows: Iterable[Sequence[str]]) -> TextTable:
        """Build a table from plain texts."""
        return cls(
            columns=tuple(TextColumn(title=title) for title in titles),
            rows=tuple(tuple(TextCell(text=text) for text in row) for row in rows),
        )

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table; texts must be escaped already."""
        titles = [column.title for column in self.columns]
        return [_format_line(titles), "|" + "---|" * len(titles), *(_format_line(map(str, row)) for row in self.rows)]

    def rich(self) -> RichTable:
        """Return the table for the terminal."""
        from rich.table import Table as RichTable

        rich = RichTable(
            title=self.title or None, title_style="bold", title_justify="left", box=None, pad_edge=False,
            header_style="bold",
        )  # fmt: skip
        for number, column in enumerate(self.columns):
            title = "\n".join(_wrap_title(column.title, self._measure_cell_width(number))).replace("[", "\\[")
            rich.add_column(title, justify=column.justify, no_wrap=not column.wraps)
        for number, row in enumerate(self.rows):
            kind = self.kinds[number] if self.kinds else ""
            cells = [_format_markup(cell, column) for cell, column in zip(row, self.columns, strict=True)]
            rich.add_row(*cells, style=KIND_STYLES.get(kind))
        return rich

    def fit(self, width: int) -> TextTable:
        """Return the essential columns, and as many others from the left as fit on the terminal."""
        free = width - sum(self._measure_width(n) for n, column in enumerate(self.columns) if column.essential)
        chosen = {n for n, column in enumerate(self.columns) if column.essential}
        for n in range(len(self.columns)):
            if n not in chosen:
                free -= self._measure_width(n)
                if free < 0:
                    break
                chosen.add(n)
        return self.select(sorted(chosen))

    def select(self, numbers: Sequence[int]) -> TextTable:
        """Return the columns with these numbers."""
        return replace(
            self,
            columns=tuple(self.columns[n] for n in numbers),
            rows=tuple(tuple(row[n] for n in numbers) for row in self.rows),
        )

    def _measure_cell_width(self, number: int) -> int:
        column = self.columns[number]
        return max((len(_terminal_text(row[number], column)) for row in self.rows), default=0)

    def _measure_width(self, number: int) -> int:
        cells = self._measure_cell_width(number)
        return _COLUMN_GAP + max(cells, *map(len, _wrap_title(self.columns[number].title, cells)))


def _wrap_title(title: str, width: int) -> list[str]:
    longest_word = max(map(len, re.findall(r"[^\s-]+-?", title)), default=0)
    return textwrap.wrap(title, max(width, longest_word, _MIN_TITLE_WIDTH)) or [""]


def _terminal_text(cell: TextCell, column: TextColumn) -> str:
    return cell.text if column.brief or not cell.detail else f"{cell.text} {cell.detail}"


def _format_markup(cell: TextCell, column: TextColumn) -> str:
    text = cell.text.replace("[", "\\[")
    if column.brief or not cell.detail:
        return text
    return f"{text} [dim]{cell.detail.replace('[', chr(92) + '[')}[/dim]"


def _format_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
