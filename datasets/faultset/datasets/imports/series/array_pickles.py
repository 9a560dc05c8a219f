"""Read pickles of numpy arrays without running the functions that they name.

A pickle is a program that may call any function. Only instructions that build an array of numbers are accepted, and
functions of this module replace the functions that the pickle names.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from faultset.core.errors import DataError
from faultset.core.printable import first_line
from faultset.core.regular_files import read_regular

_LIMIT_BYTES = 2 << 30
_MAX_INSTRUCTIONS = 1_000
_CODES = frozenset("b1 u1 u2 u4 u8 i1 i2 i4 i8 f2 f4 f8".split())
"""numpy's codes of the accepted types of numbers."""
_INSTRUCTIONS = frozenset(
    "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE BUILD PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES BINBYTES8 SHORT_BINBYTES BYTEARRAY8 UNICODE BINUNICODE "
    "SHORT_BINUNICODE".split()
)


def read_array(path: Path) -> np.ndarray:
    """Return the array of numbers in a pickle, as doubles.

    Raises
    ------
    DataError
        The file is missing or truncated, or holds something other than an array of numbers.
    """
    content = read_regular(path, limit_bytes=_LIMIT_BYTES)
    try:
        _check_instructions(content)
        value = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
        if not isinstance(value, _Array):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")
        return value.build()
    except Exception as error:  # damaged pickles raise errors of any class
        reason = first_line(error)
        raise DataError(
            f"{path} must be a pickle of one numpy array of numbers, but cannot be read as one ({reason}); restore the "
            "file"
        ) from error


def _check_instructions(content: bytes) -> None:
    """Raise UnpicklingError for an instruction that arrays do not need."""
    for number, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if instruction.name not in _INSTRUCTIONS or number >= _MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has the instruction {instruction.name}")
        is_index = instruction.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if is_index and (argument or 0) >= _MAX_INSTRUCTIONS:  # the reader would reserve memory up to that index
            raise pickle.UnpicklingError(f"it stores a value at index {argument}")


class _DType:
    """Replaces `numpy.dtype`."""

    def __init__(self, code: str, align: bool = False, copy: bool = False) -> None:
        self._code, self._order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = state[1]

    def build(self) -> np.dtype:
        if self._code not in _CODES or self._order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"its items have the type {self._order}{self._code}")
        return np.dtype(self._order + self._code)


class _Array:
    """Replaces `numpy.ndarray`."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self._shape, self._kind, self._is_fortran, self._content = state

    def build(self) -> np.ndarray:
        kind, content = self._kind, self._content
        if isinstance(content, str):  # written by Python 2
            content = content.encode("latin1")
        if not isinstance(kind, _DType) or not isinstance(content, bytes | bytearray):
            raise pickle.UnpicklingError("its items must be numbers")
        values = np.frombuffer(content, kind.build())
        return values.reshape(self._shape, order="F" if self._is_fortran else "C").astype(np.float64)


def _new_array(subtype: object, shape: object, code: object) -> _Array:
    """Replace `numpy.core.multiarray._reconstruct`, which reserves memory for the shape."""
    return _Array()


def _array_of_buffer(content: object, kind: object, shape: object, order: object) -> _Array:
    """Replace `numpy.core.numeric._frombuffer`."""
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", content))
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Replace `_codecs.encode`, with which Python 3 writes bytes for Python 2."""
    return text.encode("latin1")


_REPLACEMENTS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _new_array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _array_of_buffer for core in ("core", "_core")},
}


class _ArrayUnpickler(pickle.Unpickler):
    """Accepts only the names in `_REPLACEMENTS`."""

    def find_class(self, module: str, name: str, /) -> Any:
        try:
            return _REPLACEMENTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it calls {module}.{name}") from None
