"""What several methods work out of one and the same table is worked out once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

_Made = TypeVar("_Made")
_made: dict[int, dict[Hashable, Any]] = {}


def once_per_table(table: pa.Table, key: Hashable, make: Callable[[], _Made]) -> _Made:
    """Return what `make` returned when it was last called for this very table and key.

    A view that reads its tables once hands out the same object to every method; one that reads anew each time
    gains and loses nothing. What is remembered goes when the table goes, and must not be changed.
    """
    known = _made.get(id(table))
    if known is None:
        known = _made[id(table)] = {}
        weakref.finalize(table, _made.pop, id(table), None)
    if key not in known:
        known[key] = make()
    return known[key]
