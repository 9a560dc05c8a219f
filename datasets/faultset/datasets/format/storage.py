"""Sort rows, write Parquet files compactly, and open them safely."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError, DiskFullError
from faultset.core.files import flush, is_disk_full, parquet_path
from faultset.core.printable import printable
from faultset.core.regular_files import explain_read_error, stat_regular_file
from faultset.datasets.format.schemas import SCHEMA_VERSION, TRUTH_NAMES, dictionary_columns, stored_schema, time_column

_SORT_COLUMNS = ("metric", "time", "scheduled")
"""Sort columns. Only they get statistics, because others do not let readers skip row groups; in tables without a sort
column, all columns get statistics, except with `SMALLEST`.
"""
_DICTIONARY = "RLE_DICTIONARY"
_SEARCH_LEVEL = 9
"""Compression level of the search for encodings; it finds almost the same encodings as the highest level in a third of
the time.
"""
_BATCH_ROWS = 1 << 14
ROW_GROUP_ROWS = 1 << 17
"""Small enough to skip most of a file when filtering by metric name, large enough to compress well."""


class TableSchemaError(DataError):
    """The columns of a file differ from its table's schema."""


@dataclass(frozen=True)
class Compression:
    """Compression of a file's pages."""

    codec: str
    level: int | None = None
    is_searched: bool = False
    """Whether to search for the smallest encoding of each column and to omit the embedded Arrow schema."""


SMALL = Compression("zstd", 5)
QUICK = Compression("zstd", 1)
QUICKEST = Compression("lz4")
"""For numbers and tables of one row: 10 % larger than with zstd, in two thirds of the time."""
SMALLEST = Compression("zstd", 19, is_searched=True)
"""A third smaller than `SMALL`; writing takes ten times as long."""


def write_parquet(path: Path, table: pa.Table, *, compression: Compression = SMALL) -> None:
    """Write one table with dictionary-encoded strings and statistics, and flush it to disk."""
    if len(table):
        _write_rows(parquet_path(path), table, compression)
    else:
        path.write_bytes(_build_empty_file(table.schema, compression if compression.is_searched else QUICK))
    flush(path)


@lru_cache
def _build_empty_file(schema: pa.Schema, compression: Compression) -> bytes:
    sink = io.BytesIO()
    _write_rows(sink, schema.empty_table(), compression)
    return sink.getvalue()


def _write_rows(sink: Path | io.BytesIO, table: pa.Table, compression: Compression) -> None:
    schema = table.schema
    plain = stored_schema(schema)
    smallest = _find_smallest_encodings(table) if compression.is_searched else {}
    encodings = {name: encoding for name, encoding in smallest.items() if encoding != _DICTIONARY}
    dictionaries: Any = [*dictionary_columns(schema), *(smallest.keys() - encodings)] or False
    statistics: Any = [name for name in _SORT_COLUMNS if name in schema.names] or not compression.is_searched
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=compression.codec,
        compression_level=compression.level,
        use_dictionary=dictionaries,
        column_encoding=encodings or None,
        write_statistics=statistics,
        store_schema=False,
        write_batch_size=_BATCH_ROWS,
    )
    with writer:
        if len(table):
            # An empty table gets no row group, because some readers take the size of the first as their batch size.
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        metadata = {"faultset:schema_version": str(SCHEMA_VERSION)}
        if not compression.is_searched:
            # The stored Arrow schema has plain strings, because some readers refuse dictionary types.
            metadata["ARROW:schema"] = base64.b64encode(plain.serialize().to_pybytes()).decode()
        writer.add_key_value_metadata(metadata)


def _find_smallest_encodings(table: pa.Table) -> dict[str, str]:
    """Return the smallest widely supported encoding of each column."""
    encodings = {}
    for field in table.schema:
        kind, column = field.type, table.select([field.name])
        if pa.types.is_floating(kind):
            others = ["PLAIN", "BYTE_STREAM_SPLIT"]
        elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
            others = ["PLAIN", "DELTA_BINARY_PACKED"]
        elif pa.types.is_string(kind):
            # Arrow reads strings into dictionaries from these encodings only
            others = ["PLAIN"]
        else:
            continue
        encodings[field.name] = min(
            [_DICTIONARY, *others], key=lambda encoding: _measure_encoded_bytes(column, encoding)
        )
    return encodings


def _measure_encoded_bytes(column: pa.Table, encoding: str) -> int:
    sink, (name,) = io.BytesIO(), column.column_names
    pq.write_table(
        column,
        sink,
        compression=SMALLEST.codec,
        compression_level=_SEARCH_LEVEL,
        use_dictionary=encoding == _DICTIONARY,
        column_encoding=None if encoding == _DICTIONARY else {name: encoding},
        write_statistics=False,
        store_schema=False,
    )
    return sink.tell()


@dataclass(frozen=True, kw_only=True)
class TableLimits:
    """Limits on the size that a table's metadata claims, checked before the table is read."""

    rows: int
    file_bytes: int


TELEMETRY_LIMITS = TableLimits(rows=50_000_000, file_bytes=4 << 30)
TRUTH_LIMITS = TableLimits(rows=100_000, file_bytes=64 << 20)
_ROWS_PER_BYTE = 64
"""Largest plausible number of rows per byte of a file."""
_LARGEST_RATIO = 1_000
_SMALL_BYTES = 64 << 20
_UNREADABLE = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, MemoryError, OverflowError)


def find_limits(table: str) -> TableLimits:
    return TRUTH_LIMITS if table in TRUTH_NAMES else TELEMETRY_LIMITS


def open_table(path: Path, table: str, schema: pa.Schema, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open one table of an episode after checking its metadata; rows are not read yet.

    Raises
    ------
    DataError
        The file is missing, damaged or not a regular file, has a different schema, or claims an implausible size.
    """
    limits = find_limits(table)
    size = stat_regular_file(path, below=path.parents[1], limit_bytes=limits.file_bytes).st_size
    with translate_damage(path):
        try:
            file = pq.ParquetFile(parquet_path(path), read_dictionary=dictionaries or None)
        except KeyError:  # the file lacks one of the dictionary columns
            file = pq.ParquetFile(parquet_path(path))
        try:
            _check_claims(path, file.metadata, size, limits)
            problem = next(schema_differences(stored_schema(schema), file.schema_arrow), None)
            if problem is not None:
                raise TableSchemaError(
                    f"{path} does not match the schema of table {table}: {problem}; restore the file"
                )
        except BaseException:
            file.close()
            raise
        return file


def _check_claims(path: Path, metadata: pq.FileMetaData, size: int, limits: TableLimits) -> None:
    """Refuse a file whose metadata claims more than a file of its size can hold."""
    rows = metadata.num_rows
    if not 0 <= rows <= min(limits.rows, _ROWS_PER_BYTE * size):
        raise DataError(
            f"{path} claims {rows:,} rows in {size:,} bytes, but must have at most "
            f"{min(limits.rows, _ROWS_PER_BYTE * size):,}; restore the file"
        )
    unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    maximum = max(_SMALL_BYTES, _LARGEST_RATIO * size)
    if not 0 <= unpacked <= maximum:
        raise DataError(
            f"{path} claims to unpack from {size:,} to {unpacked:,} bytes, but must stay below {maximum:,}; "
            "restore the file"
        )


def schema_differences(expected: pa.Schema, actual: pa.Schema) -> Iterator[str]:
    """Yield the differences between two schemas; large strings and dictionaries of strings count as strings."""
    if actual.equals(expected):
        return
    if expected.names != actual.names:
        missing = sorted(set(expected.names) - set(actual.names))
        extra = sorted(printable(name[:60]) for name in set(actual.names) - set(expected.names))
        if missing or extra:
            problems = [f"missing: {', '.join(missing)}"] if missing else []
            problems += [f"unknown: {', '.join(extra)}"] if extra else []
            yield f"its columns must be {expected.names} ({'; '.join(problems)})"
        else:
            yield f"its columns must be {expected.names} in this order, got {actual.names}"
        return
    for field in expected:
        other = actual.field(field.name)
        kind = other.type.value_type if pa.types.is_dictionary(other.type) else other.type
        if not _is_same_type(kind, field.type):
            yield f"column {field.name} must have type {field.type}, but has {printable(str(other.type)[:80])}"


def _is_same_type(actual: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether two types are equal; large strings count as strings."""
    if pa.types.is_list(expected) or pa.types.is_large_list(expected):
        is_list = pa.types.is_list(actual) or pa.types.is_large_list(actual)
        return is_list and _is_same_type(actual.value_type, expected.value_type)
    if pa.types.is_struct(expected):
        return pa.types.is_struct(actual) and (
            [field.name for field in actual] == [field.name for field in expected]
            and all(map(_is_same_type, (field.type for field in actual), (field.type for field in expected)))
        )
    return str(actual).replace("large_", "") == str(expected)


@contextmanager
def translate_damage(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged Parquet file into a DataError that names it."""
    try:
        yield
    except PermissionError as error:
        raise explain_read_error(path, error) from error
    except _UNREADABLE as error:
        reason = str(error).partition("\n")[0][:160] or type(error).__name__
        raise DataError(
            f"{path} is truncated or damaged ({reason}); restore it or collect the episode again"
        ) from error


@contextmanager
def translate_disk_full(folder: Path) -> Iterator[None]:
    """Turn the error of a full disk into a DataError that names the folder; leave other errors unchanged."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DiskFullError(
            f"no space left on the disk of {folder}; free some space or choose another folder, then run again"
        ) from error


SERIES_COLUMNS = ("metric", "service", "pod", "container", "labels")
"""Columns that identify a metric series, in sort order."""
_MAX_SORT_KEY = np.iinfo(np.int64).max


def order_of(table: str, rows: pa.Table) -> np.ndarray | None:
    """Return the row indices that put a table into storage order; None if it already is."""
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
