"""Views passed to methods: frames are computed once per episode, and undeclared tables are rejected."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache

from faultset.core.times import step_seconds
from faultset.datasets.format.context import read_context
from faultset.datasets.views import EpisodeView

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from faultset.baselines.registry import BaselineSpec
    from faultset.datasets.format.labels import AlarmLocation

CACHE_BYTES = 256 << 20
_OBJECT_BYTES = 80


class Cache:
    """A least-recently-used cache, limited by the memory of its values.

    Parameters
    ----------
    limit_bytes
        Limit for all values together; a single larger value is cached alone.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._values: LRUCache[Hashable, Any] = LRUCache(limit_bytes, lambda value: min(_size(value), limit_bytes))

    @property
    def used_bytes(self) -> int:
        """Estimated bytes of all cached values."""
        return int(self._values.currsize)

    def get_or_compute(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        if key in self._values:
            return self._values[key]
        value = compute()
        self.put(key, value)
        return value

    def get(self, key: Hashable) -> Any:
        return self._values.get(key)

    def put(self, key: Hashable, value: Any) -> None:
        """Cache a value under a key, replacing an earlier one."""
        self._values[key] = value


def _size(value: Any) -> int:
    if hasattr(value, "memory_usage"):
        return _frame_size(value)
    if is_dataclass(value):
        return sum(_size(getattr(value, field.name)) for field in fields(value))
    return int(getattr(value, "nbytes", 1024))


def _frame_size(frame: pd.DataFrame) -> int:
    """Estimate the bytes of a frame; pandas' own count is slower than most methods."""
    rows = len(frame)
    total = int(frame.index.memory_usage())
    for position, kind in enumerate(frame.dtypes):
        if isinstance(kind, np.dtype) and kind.kind != "O":
            total += kind.itemsize * rows
        else:
            column = frame.iloc[:, position]
            total += int(column.memory_usage(index=False)) + (_OBJECT_BYTES * rows if isinstance(kind, np.dtype) else 0)
    return total


REQUESTS = "requests"


class UndeclaredTable(Exception):
    """A baseline read a table that it did not declare."""


def readable_tables(spec: BaselineSpec) -> frozenset[str]:
    """Return the tables that a baseline declares: `tables`, plus the clients' requests if it needs `sli`."""
    return frozenset(spec.tables) | (frozenset({REQUESTS}) if "sli" in spec.needs else frozenset())


class SharedView(EpisodeView):
    """A view whose frames are computed once and shared by all methods that read the episode.

    Every caller gets its own frame; pandas' copy-on-write protects the shared data.
    """

    def __init__(
        self, path: str, cache: Cache, *, tables: frozenset[str], alarm_location: AlarmLocation | None = None
    ) -> None:
        # the parent would read the context again for every method
        self._context = cache.get_or_compute((path, "context"), lambda: read_context(Path(path)))
        self._folder = Path(path)
        self._alarm_location = alarm_location
        self._path = path
        self._cache = cache
        self._tables = tables
        self.left_out: set[tuple[str, str]] = set()
        """(service, metric) of series that the method skipped."""
        self.comparable = True
        """Whether the metrics that the method read have healthy samples to compare with."""

    def note_skipped_series(self, series: Iterable[tuple[str, str]], *, comparable: bool = True) -> None:
        self.left_out.update(series)
        self.comparable &= comparable

    def table(
        self, name: str, columns: Sequence[str] | None = None, filters: Any = None
    ) -> pa.Table:  # Arrow tables are immutable and need no protection
        self._check(name)
        if filters is not None:
            return super().table(name, columns, filters)
        chosen = self._schema(name).names if columns is None else list(columns)
        key = (self._path, "table", name)
        cached = self._cache.get(key)
        missing = chosen if cached is None else [column for column in chosen if column not in cached.column_names]
        if cached is None or missing:
            # methods read different columns, and decoding a column twice is slow
            new = super().table(name, [*dict.fromkeys(missing)])
            cached = new if cached is None else _append_columns(cached, new)
            self._cache.put(key, cached)
        return cached.select(chosen)

    def pieces(self, name: str, *columns: str) -> Iterator[tuple[pa.ChunkedArray, ...]]:
        self._check(name)
        return super().pieces(name, *columns)

    def wide(self, step_s: float | str = 1.0, roles: Iterable[str] | None = None) -> pd.DataFrame:
        self._check("metrics")
        chosen = None if roles is None else frozenset(roles)
        seconds = step_seconds(step_s)
        make = lambda: super(SharedView, self).wide(seconds, chosen)  # noqa: E731
        return self._shared(("wide", seconds, chosen), make).copy(deep=False)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        skipped_key = (self._path, "left out", key)

        def compute() -> Any:
            outer, self.left_out = self.left_out, set()
            try:
                return make()
            finally:
                self._cache.put(skipped_key, frozenset(self.left_out))
                self.left_out = outer

        value = self._shared(("made", key), compute)
        self.left_out |= self._cache.get(skipped_key) or frozenset()
        return value

    def _frame(self, name: str) -> pd.DataFrame:
        self._check(name)
        return self._shared(("frame", name), lambda: super(SharedView, self)._frame(name)).copy(deep=False)

    def _check(self, name: str) -> None:
        if name == REQUESTS and name not in self._tables:
            raise UndeclaredTable('reads the table "requests" but does not declare needs = {"sli"}')
        if name not in self._tables:
            raise UndeclaredTable(f'reads the table "{name}" but does not declare it in tables')

    def _shared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        return self._cache.get_or_compute((self._path, *key), make)


def _append_columns(left: pa.Table, right: pa.Table) -> pa.Table:
    """Append the columns of a table with the same rows."""
    for field, column in zip(right.schema, right.columns, strict=True):
        left = left.append_column(field, column)
    return left


class TrainingSet(Sequence[SharedView]):
    """Views of training episodes, opened on access because most methods read none."""

    def __init__(self, folders: Sequence[str], cache: Cache, *, tables: frozenset[str]) -> None:
        self._folders, self._cache, self._tables = tuple(folders), cache, tables

    def __len__(self) -> int:
        return len(self._folders)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(len(self))[number]]
        return SharedView(self._folders[number], self._cache, tables=self._tables)


def prepare_pandas() -> None:
    """Turn on copy-on-write, which shared frames rely on; pandas 3 has it by default."""
    import pandas as pd

    if int(pd.__version__.partition(".")[0]) < 3:
        pd.options.mode.copy_on_write = True
