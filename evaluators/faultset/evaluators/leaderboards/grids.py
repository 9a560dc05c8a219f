"""A table of texts, and how it is written as Markdown, on the terminal and in a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True, kw_only=True)
class GridColumn:
    """A column of texts."""

    title: str
    meaning: str = ""
    justify: Literal["left", "right"] = "left"
    wraps: bool = False


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Rows of cells below titled columns; templates of pages read the same fields."""

    columns: tuple[GridColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    styles: tuple[str | None, ...] = ()
    """Style of each row on the terminal."""
    title: str = ""

    @classmethod
    def of(cls, titles: Iterable[str], rows: Iterable[Sequence[str]]) -> Grid:
        """Build a grid without meanings and styles."""
        return cls(columns=tuple(GridColumn(title=title) for title in titles), rows=tuple(map(tuple, rows)))

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table; texts must be escaped already."""
        titles = [column.title for column in self.columns]
        return [_line(titles), "|" + "---|" * len(titles), *(_line(row) for row in self.rows)]

    def rich(self, columns: int | None = None) -> RichTable:
        """Return the first columns for the terminal."""
        from rich.table import Table as RichTable

        rich = RichTable(
            title=self.title or None, title_style="bold", title_justify="left", box=None, pad_edge=False,
            header_style="bold",
        )  # fmt: skip
        for column in self.columns[:columns]:
            rich.add_column(column.title, justify=column.justify, no_wrap=not column.wraps)
        for number, row in enumerate(self.rows):
            cells = [text.replace("[", "\\[") for text in row[:columns]]
            rich.add_row(*cells, style=self.styles[number] if self.styles else None)
        return rich


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
