"""Text of unknown origin as it may be shown on a terminal."""

from __future__ import annotations

import os


def printable(text: str | os.PathLike[str]) -> str:
    """Return a text with every control character and every half of a surrogate pair written as its code.

    Examples
    --------
    >>> printable("geo\\x1b[2J")
    'geo\\\\x1b[2J'
    """
    text = os.fspath(text)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def quoted(value: object) -> str:
    """Return a value as a short piece of a sentence.

    Examples
    --------
    >>> quoted("x" * 100)
    '"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."'
    """
    if isinstance(value, str):
        return f'"{printable(value if len(value) <= 40 else value[:39] + "...")}"'
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    return printable(repr(value)[:40])
