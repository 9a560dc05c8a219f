"""Mask numbers and ids in log lines, so that lines of one template become identical.

Every run of hexadecimal digits with at least one decimal digit is masked. This is less precise and much faster than the
masks of log parsers.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

WILDCARD = "<*>"
# Python and Arrow interpret this pattern in the same way.
_NUMBER = "(?:0[xX])?[0-9a-fA-F]*[0-9][0-9a-fA-F]*"
_NUMBERS = re.compile(_NUMBER)


def mask_numbers(text: str) -> str:
    """Replace every number and id with a wildcard.

    >>> mask_numbers("server.go:124 > in Nearby id=ad32e2 at 0x1F")
    'server.go:<*> > in Nearby id=<*> at <*>'
    """
    return _NUMBERS.sub(WILDCARD, text)


def mask_column(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Mask every text of a column; nulls remain null."""
    return pc.replace_substring_regex(texts, pattern=_NUMBER, replacement=WILDCARD)  # type: ignore[attr-defined]
