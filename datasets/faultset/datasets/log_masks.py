"""Masking what varies in log lines, so that lines of one kind read the same.

Whatever has a digit varies; with the letters of hexadecimal numbers around it, ids go as a whole. This is cruder and
much cheaper than the masks of log parsers, which also reads the numbers.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

WILDCARD = "<*>"
# Means the same to Python and to Arrow.
_NUMBER = "(?:0[xX])?[0-9a-fA-F]*[0-9][0-9a-fA-F]*"
_NUMBERS = re.compile(_NUMBER)


def masked(text: str) -> str:
    """Put a wildcard in place of every number and id.

    >>> masked("server.go:124 > in Nearby id=ad32e2 at 0x1F")
    'server.go:<*> > in Nearby id=<*> at <*>'
    """
    return _NUMBERS.sub(WILDCARD, text)


def masked_column(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask every text of a column; nulls stay."""
    return pc.replace_substring_regex(texts, pattern=_NUMBER, replacement=WILDCARD)  # type: ignore[attr-defined]
