"""Columns that grow row by row and become Arrow arrays."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from faultset.core.files import replace_surrogates

Numbers = npt.NDArray[Any]

_HEX_DIGITS = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype="S2")


class Words:
    """Assigns numbers to distinct strings in order of first appearance; None gets -1."""

    __slots__ = ("_numbers", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str | None) -> int:
        """Return the number of a string; a new string gets the next number."""
        if word is None:
            return -1
        number = self._numbers.get(word)
        if number is None:
            text = replace_surrogates(word)
            number = self._numbers.setdefault(text, len(self.words))
            if number == len(self.words):
                self.words.append(text)
            self._numbers[word] = number
        return number


def copy_column(column: array[Any] | bytearray, dtype: str) -> Numbers:
    """Return a copy of a growing column."""
    return np.frombuffer(bytes(column), dtype=dtype)


def name_array(codes: Numbers, words: Sequence[str]) -> pa.DictionaryArray:
    """Return a dictionary array of words by number (-1 is null), without unused words."""
    used_codes = np.unique(codes)
    used_codes = used_codes[used_codes >= 0]
    position = np.full(len(words) + 1, -1, dtype=np.int32)
    position[used_codes] = np.arange(len(used_codes), dtype=np.int32)
    compact = position[codes]
    indices = pa.array(compact, pa.int32(), mask=compact < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array([words[number] for number in used_codes], pa.string()))


def hex_array(ids: Numbers) -> pa.StringArray:
    """Return ids (one per row of bytes) as hex strings; an id of zeros is null."""
    count, width = ids.shape
    offsets = np.arange(count + 1, dtype=np.int32) * (2 * width)
    valid = np.packbits(ids.any(axis=1), bitorder="little")
    buffers = (offsets, _HEX_DIGITS[ids].tobytes(), valid)
    return pa.StringArray.from_buffers(count, *(pa.py_buffer(buffer) for buffer in buffers))
