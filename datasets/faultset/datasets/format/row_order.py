"""Order of the rows of a stored table: metrics by series and time, all others by time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from faultset.datasets.format.schemas import time_column

SERIES_COLUMNS = ("metric", "service", "pod", "container", "labels")
"""Columns that identify a metric series, in sort order."""
_MAX_SORT_KEY = np.iinfo(np.int64).max


def order_of(table: str, rows: pa.Table) -> np.ndarray | None:
    """Return the row indices that sort a table as it is stored; None if it is sorted."""
    return _sort_series(rows) if table == "metrics" else _sort_times(rows, time_column(table))


def in_one_chunk(table: pa.Table) -> pa.Table:
    """Return a table with one chunk, and thus one dictionary, per column."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    return table.unify_dictionaries().combine_chunks()


def _sort_series(rows: pa.Table) -> np.ndarray | None:
    """Return the row indices that sort by series and time; None if the rows are sorted."""
    times = rows["time"].cast(pa.int64()).to_numpy()
    if _is_in_series_order(rows, times):
        return None
    series = np.zeros(len(rows), dtype=np.int64)
    for name in SERIES_COLUMNS:
        ranks = _rank_words(rows[name])
        size = int(ranks.max(initial=0)) + 1
        if int(series.max(initial=0)) + 1 > _MAX_SORT_KEY // size:
            # There are too many possible combinations for int64; renumber the existing ones.
            series = np.unique(series, return_inverse=True)[1].astype(np.int64)
        series = series * size + ranks
    return np.lexsort([times, series])


def _is_in_series_order(rows: pa.Table, times: np.ndarray) -> bool:
    """Return whether the rows are sorted by series and time; compares names only at the first row of each series."""
    if not len(rows):
        return True
    change = np.zeros(len(rows), dtype=bool)
    change[0] = True
    codes = []
    for name in SERIES_COLUMNS:
        array = as_array(rows[name])
        code = array.indices.fill_null(-1) if array.null_count else array.indices
        codes.append((code.to_numpy(zero_copy_only=False), array.dictionary))
        if len(array.dictionary) > 1 or array.null_count not in (0, len(array)):
            change[1:] |= codes[-1][0][1:] != codes[-1][0][:-1]
    if np.any((times[1:] < times[:-1]) & ~change[1:]):
        return False
    starts = np.flatnonzero(change)
    if len(starts) > len(rows) // 4 + 1:
        return False
    heads = []
    for code, dictionary in codes:
        words = ["", *dictionary.to_pylist()]
        # nulls sort before empty strings
        heads.append([(number >= 0, words[number + 1]) for number in code[starts].tolist()])
    keys = list(zip(*heads, strict=True))
    return all(first < second for first, second in pairwise(keys))


def as_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; copied only if it has several chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array


def _sort_times(rows: pa.Table, column: str) -> np.ndarray | None:
    times = rows[column].cast(pa.int64()).to_numpy()
    return None if np.all(times[1:] >= times[:-1]) else np.argsort(times, kind="stable")


def _rank_words(column: pa.ChunkedArray) -> np.ndarray:
    """Return integers that sort like the strings of a column; nulls first."""
    if not len(column):
        return np.zeros(0, dtype=np.int32)
    array = as_array(column)
    if len(array.dictionary) < 2 and array.null_count in (0, len(array)):
        return np.zeros(len(array), dtype=np.int32)
    words = np.asarray(array.dictionary.to_pylist(), dtype=object)
    ranks = np.empty(len(words), dtype=np.int32)
    ranks[np.argsort(words)] = np.arange(1, len(words) + 1, dtype=np.int32)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes < 0, 0, ranks[codes]) if len(words) else np.zeros(len(codes), dtype=np.int32)
