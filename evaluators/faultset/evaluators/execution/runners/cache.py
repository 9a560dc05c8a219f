"""What was computed about episodes, kept for the next method that asks, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MEMO_BYTES = 256 << 20
_OBJECT_BYTES = 80


class Memo:
    """A least-recently-used store of tables and frames whose sizes are counted.

    Parameters
    ----------
    limit_bytes
        What all kept values may take together; a single larger one is kept alone.
    """

    def __init__(self, limit_bytes: int = MEMO_BYTES) -> None:
        self._limit = limit_bytes
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all kept values, as far as they can be counted."""
        return self._bytes

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value kept under a key, or make and keep it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        value = make()
        size = _size(value)
        self._kept[key] = (value, size)
        self._bytes += size
        while self._bytes > self._limit and len(self._kept) > 1:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed
        return value


def _size(value: Any) -> int:
    if hasattr(value, "memory_usage"):
        return _frame_size(value)
    if is_dataclass(value):
        return sum(_size(getattr(value, field.name)) for field in fields(value))
    return int(getattr(value, "nbytes", 1024))


def _frame_size(frame: pd.DataFrame) -> int:
    """Count the bytes of a frame; pandas' own count takes longer for hundreds of columns than methods do."""
    rows = len(frame)
    total = int(frame.index.memory_usage())
    for position, kind in enumerate(frame.dtypes):
        if isinstance(kind, np.dtype) and kind.kind != "O":
            total += kind.itemsize * rows
        else:
            column = frame.iloc[:, position]
            total += int(column.memory_usage(index=False)) + (_OBJECT_BYTES * rows if isinstance(kind, np.dtype) else 0)
    return total
