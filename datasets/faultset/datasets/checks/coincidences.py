"""Is a number in a text there by coincidence? Identifiers of accounts and sizes of answers take every value."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

LEAST_NUMBERS = 20
"""From so many different numbers in the same place of otherwise equal texts on, one of them tells nothing."""

_DIGITS = "[0-9]+"


def is_coincidence(number: str, values: pa.Array, example: str) -> bool:
    """Say whether a column has many other numbers where one of its texts has this one.

    Parameters
    ----------
    number
        The number as text; anything else is never there by coincidence.
    values
        The distinct texts of the column.
    example
        One of them, which has the number.
    """
    if not re.fullmatch(_DIGITS, number):
        return False
    places = [place.span() for place in re.finditer(_DIGITS, example)]
    indices = [index for index, (start, end) in enumerate(places) if example[start:end] == number]
    shape = re.sub(_DIGITS, "#", example)
    alike = values.filter(pc.equal(pc.replace_substring_regex(values, _DIGITS, "#"), shape)).to_pylist()
    numbers = [re.findall(_DIGITS, text) for text in alike]
    return bool(indices) and all(len({found[index] for found in numbers}) >= LEAST_NUMBERS for index in indices)
