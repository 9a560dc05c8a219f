"""Tables and frames that several methods read, kept in memory up to a number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache

if TYPE_CHECKING:
    import pandas as pd

CACHE_BYTES = 256 << 20
_OBJECT_BYTES = 80


class Cache:
    """A least-recently-used cache of values whose sizes in memory are counted.

    Parameters
    ----------
    limit_bytes
        What all kept values may take together; a single larger one is kept alone.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._values: LRUCache[Hashable, Any] = LRUCache(limit_bytes, lambda value: min(_size(value), limit_bytes))

    @property
    def used_bytes(self) -> int:
        """Bytes of all kept values, as far as they can be counted."""
        return int(self._values.currsize)

    def get_or_compute(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the value kept under a key, or compute and keep it."""
        if key in self._values:
            return self._values[key]
        value = compute()
        self.put(key, value)
        return value

    def get(self, key: Hashable) -> Any:
        """Return the value kept under a key; None where there is none."""
        return self._values.get(key)

    def put(self, key: Hashable, value: Any) -> None:
        """Keep a value in place of the one that was kept under the key."""
        self._values[key] = value


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
