"""Numbers and tables as text, for Markdown, the terminal and HTML pages."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from faultset.evaluators.scoring.intervals import TOO_FEW, Estimate
from faultset.evaluators.scoring.metrics import Metric

if TYPE_CHECKING:
    from rich.table import Table as RichTable


NONE = "\u2013"


def format_number(value: float, metric: Metric) -> str:
    """Format a number in the unit of its metric; a dash for NaN."""
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if metric.unit in ("s", "per hour", "per day"):
        return f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    if metric.unit == "rank":
        return f"{value:.1f}"
    return f"{value:.2f}"


def format_value(estimate: Estimate, metric: Metric) -> str:
    """Format the value of an estimate; `TOO_FEW` if there are too few episodes."""
    return (
        TOO_FEW if estimate.reason.startswith(TOO_FEW) and not estimate.known else format_number(estimate.value, metric)
    )


def format_interval(estimate: Estimate, metric: Metric) -> str:
    """Format the interval in brackets; empty if there is none."""
    if not estimate.interval_known:
        return ""
    return f"[{format_number(estimate.low, metric)}, {format_number(estimate.high, metric)}]"


def format_counts(estimate: Estimate, metric: Metric) -> str:
    """Format k/n for shares, the count for rates, n for other metrics."""
    if metric.unit == "share" and estimate.k is not None:
        return f"{format_count(estimate.k)}/{estimate.n}"
    if metric.unit in ("per hour", "per day") and estimate.k is not None:
        return f"{format_count(estimate.k)} alarms"
    return f"n={estimate.n}" if estimate.n else ""


def format_count(value: float) -> str:
    """Format a count, with one decimal if seeds or ties make it a fraction."""
    return str(round(value)) if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def format_p(p: float) -> str:
    """Format a p-value; empty if it is missing."""
    if math.isnan(p):
        return ""
    return "p<0.001" if p < 0.001 else f"p={p:.3f}"


def format_seconds(value: float) -> str:
    """Format a computing time."""
    if math.isnan(value):
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def format_mebibytes(value: float) -> str:
    """Format an amount of memory."""
    return NONE if math.isnan(value) else f"{value / 2**20:.0f} MiB"


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
