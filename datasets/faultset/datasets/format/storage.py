"""Parquet files as this project stores them, and the disk beneath them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError, DiskFullError
from faultset.core.files import flush, is_disk_full, parquet_path
from faultset.core.printable import printable
from faultset.core.reading.regular_files import regular_stat, unreadable
from faultset.datasets.format.schemas import SCHEMA_VERSION, TRUTH_TABLES, dictionary_columns, stored

_ORDERS = ("metric", "time", "scheduled")
"""Columns by which tables are sorted; limits of others skip no row group and cost time."""
_DICTIONARY = "RLE_DICTIONARY"
_SEARCH_LEVEL = 9
"""Finds nearly what the highest level would, in a third of the time."""
_BATCH_ROWS = 1 << 14
ROW_GROUP_ROWS = 1 << 17
"""Small enough that a filter on metric names skips most of a file, large enough to compress well."""


class TableSchemaError(DataError):
    """A file of a table with other columns than its schema has."""


@dataclass(frozen=True)
class Compression:
    """How the pages of a file are compressed."""

    codec: str
    level: int | None = None
    is_searched: bool = False
    """Whether the encoding of each column is the one that takes least, and files hold nothing but rows."""


SMALL = Compression("zstd", 5)
QUICK = Compression("zstd", 1)
QUICKEST = Compression("lz4")
"""Numbers, and tables of a row, take a tenth more space than with zstd, and two thirds of the time."""
SMALLEST = Compression("zstd", 19, is_searched=True)
"""A third less space than `SMALL`, for ten times the time; the meaning of columns is not repeated in every file."""


def write_parquet(path: Path, table: pa.Table, *, compression: Compression = SMALL) -> None:
    """Write one table with dictionary-encoded strings and statistics, and flush it to disk."""
    if len(table):
        _write_rows(parquet_path(path), table, compression)
    else:
        path.write_bytes(_empty_file(table.schema, compression if compression.is_searched else QUICK))
    flush(path)


@lru_cache
def _empty_file(schema: pa.Schema, compression: Compression) -> bytes:
    sink = io.BytesIO()
    _write_rows(sink, schema.empty_table(), compression)
    return sink.getvalue()


def _write_rows(sink: Path | io.BytesIO, table: pa.Table, compression: Compression) -> None:
    schema = table.schema
    plain = stored(schema)
    found = _smallest_encodings(table) if compression.is_searched else {}
    encodings = {name: encoding for name, encoding in found.items() if encoding != _DICTIONARY}
    encoded: Any = [*dictionary_columns(schema), *(found.keys() - encodings)] or False
    limited: Any = [name for name in _ORDERS if name in schema.names] or not compression.is_searched
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=compression.codec,
        compression_level=compression.level,
        use_dictionary=encoded,
        column_encoding=encodings or None,
        write_statistics=limited,
        store_schema=False,
        write_batch_size=_BATCH_ROWS,
    )
    with writer:
        if len(table):
            # An empty table gets no row group: some readers take the first one's size as their batch size.
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        described = {"faultset:schema_version": str(SCHEMA_VERSION)}
        if not compression.is_searched:
            # The Arrow schema that is kept names plain strings: some readers refuse dictionary types.
            described["ARROW:schema"] = base64.b64encode(plain.serialize().to_pybytes()).decode()
        writer.add_key_value_metadata(described)


def _smallest_encodings(table: pa.Table) -> dict[str, str]:
    """Return the encoding of each column that takes less than a dictionary; all that readers of Parquet know."""
    found = {}
    for field in table.schema:
        kind, column = field.type, table.select([field.name])
        if pa.types.is_floating(kind):
            others = ["PLAIN", "BYTE_STREAM_SPLIT"]
        elif pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
            others = ["PLAIN", "DELTA_BINARY_PACKED"]
        elif pa.types.is_string(kind):
            # Arrow cannot read other encodings of texts as dictionaries
            others = ["PLAIN"]
        else:
            continue
        best = min([_DICTIONARY, *others], key=lambda encoding: _encoded_bytes(column, encoding))
        found[field.name] = best
    return found


def _encoded_bytes(column: pa.Table, encoding: str) -> int:
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
    """How large a table may say that it is, before anything of it is read."""

    rows: int
    file_bytes: int


TELEMETRY_LIMITS = TableLimits(rows=50_000_000, file_bytes=4 << 30)
TRUTH_LIMITS = TableLimits(rows=100_000, file_bytes=64 << 20)
_ROWS_PER_BYTE = 64
"""A hundred thousand equal rows take a few hundred bytes; more rows than this in a byte are a claim."""
_LARGEST_RATIO = 1_000
_SMALL_BYTES = 64 << 20
_UNREADABLE = (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, MemoryError, OverflowError)


def limits_of(table: str) -> TableLimits:
    """Return the limits of a table of an episode."""
    return TRUTH_LIMITS if table in TRUTH_TABLES else TELEMETRY_LIMITS


def open_table(path: Path, table: str, schema: pa.Schema, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open one table of an episode, of which so far only the description in the file was looked at.

    Parameters
    ----------
    path
        File `DATASET/episodes/<id>/<folder>/<table>.parquet`.
    table
        Name of the table.
    schema
        What it must be.
    dictionaries
        Columns to read as dictionaries.

    Raises
    ------
    DataError
        The file is missing, no regular file, damaged, of another schema, or says that it is larger than it can be.
    """
    limits = limits_of(table)
    size = regular_stat(path, below=path.parents[1], limit_bytes=limits.file_bytes).st_size
    with translate_damage(path):
        try:
            file = pq.ParquetFile(parquet_path(path), read_dictionary=dictionaries or None)
        except KeyError:  # it lacks one of the columns
            file = pq.ParquetFile(parquet_path(path))
        with _closed_on_error(file):
            _check_claims(path, file.metadata, size, limits)
            problem = next(schema_differences(stored(schema), file.schema_arrow), None)
            if problem is not None:
                raise TableSchemaError(f"{path} is not a table {table}: {problem}; restore the file")
        return file


@contextmanager
def _closed_on_error(file: pq.ParquetFile) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file.close()
        raise


def _check_claims(path: Path, metadata: pq.FileMetaData, size: int, limits: TableLimits) -> None:
    """Refuse a file whose description promises more than a file of its size can hold."""
    rows = metadata.num_rows
    if not 0 <= rows <= min(limits.rows, _ROWS_PER_BYTE * size):
        raise DataError(
            f"{path} says that it has {rows:,} rows in {size:,} bytes, wanted are at most "
            f"{min(limits.rows, _ROWS_PER_BYTE * size):,}; restore the file"
        )
    unpacked = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    most = max(_SMALL_BYTES, _LARGEST_RATIO * size)
    if not 0 <= unpacked <= most:
        raise DataError(
            f"{path} says that it unpacks from {size:,} to {unpacked:,} bytes, wanted are at most {most:,}; "
            "restore the file"
        )


def schema_differences(wanted: pa.Schema, found: pa.Schema) -> Iterator[str]:
    """Say what of a schema is not as wanted; wide strings and dictionaries of strings count as strings."""
    if found.equals(wanted):
        return
    if wanted.names != found.names:
        missing = sorted(set(wanted.names) - set(found.names))
        extra = sorted(printable(name[:60]) for name in set(found.names) - set(wanted.names))
        yield f"columns differ: missing {missing}, unknown {extra}, wanted in the order {wanted.names}"
        return
    for field in wanted:
        other = found.field(field.name)
        kind = other.type.value_type if pa.types.is_dictionary(other.type) else other.type
        if not _same_type(kind, field.type):
            yield f"column {field.name} is of type {printable(str(other.type)[:80])}, wanted is {field.type}"


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare types, with wide strings of other writers taken as strings."""
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return listed and _same_type(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        return pa.types.is_struct(found) and (
            [field.name for field in found] == [field.name for field in wanted]
            and all(map(_same_type, (field.type for field in found), (field.type for field in wanted)))
        )
    return str(found).replace("large_", "") == str(wanted)


@contextmanager
def translate_damage(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged Parquet file into one sentence that names it."""
    try:
        yield
    except PermissionError as error:
        raise unreadable(path, error) from error
    except _UNREADABLE as error:
        reason = printable(str(error).splitlines()[0][:160]) if str(error) else type(error).__name__
        raise DataError(
            f"{path} is truncated or damaged ({reason}); restore it or collect the episode again"
        ) from error


@contextmanager
def translate_disk_full(folder: Path) -> Iterator[None]:
    """Turn a full disk into one DataError that names the folder; let other errors pass."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DiskFullError(
            f"no space left on the disk of {folder}; free some or choose another folder, then run again"
        ) from error
