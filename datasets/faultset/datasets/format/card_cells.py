"""Texts in the tables of a dataset card."""

from __future__ import annotations

from html import escape

from faultset.core.printable import printable


def cell(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return escape(printable(text)).replace("|", "&#124;").replace("`", "&#96;")
