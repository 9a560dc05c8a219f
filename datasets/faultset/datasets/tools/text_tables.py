"""Tables and numbers in the answers of tools."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from faultset.datasets.kubectl.tables import in_columns

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
