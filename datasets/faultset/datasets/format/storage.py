"""Parquet files as this project stores them, and the disk beneath them."""

from __future__ import annotations

import base64
import errno
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import flush
from faultset.datasets.format.schemas import SCHEMA_VERSION, dictionary_columns, stored

_ORDERS = ("metric", "time", "scheduled")
"""Columns by which tables are sorted; limits of others skip no row group and cost time."""
_BATCH_ROWS = 1 << 14
ROW_GROUP_ROWS = 1 << 17
"""Small enough that a filter on metric names skips most of a file, large enough to compress well."""


@dataclass(frozen=True)
class Compression:
    """How the pages of a file are compressed."""

    codec: str
    level: int | None = None


SMALL = Compression("zstd", 5)
QUICK = Compression("zstd", 1)
QUICK_NUMBERS = Compression("lz4")
"""Numbers take a tenth more space than with zstd, and are written in two thirds of the time."""


def write_parquet(path: Path, table: pa.Table, *, compression: Compression = SMALL) -> None:
    """Write one table with dictionary-encoded strings and statistics, and flush it to disk."""
    if len(table):
        _write_rows(path, table, compression)
    else:
        path.write_bytes(_empty_file(table.schema))
    flush(path)


@lru_cache
def _empty_file(schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    _write_rows(sink, schema.empty_table(), QUICK)
    return sink.getvalue()


def _write_rows(sink: Path | io.BytesIO, table: pa.Table, compression: Compression) -> None:
    schema = table.schema
    plain = stored(schema)
    encoded: Any = dictionary_columns(schema) or False
    limited: Any = [name for name in _ORDERS if name in schema.names] or True
    writer = pq.ParquetWriter(
        sink,
        schema,
        compression=compression.codec,
        compression_level=compression.level,
        use_dictionary=encoded,
        write_statistics=limited,
        store_schema=False,
        write_batch_size=_BATCH_ROWS,
    )
    with writer:
        if len(table):
            # An empty table gets no row group: some readers take the first one's size as their batch size.
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        # The Arrow schema that is kept names plain strings: some readers refuse dictionary types.
        arrow_schema = base64.b64encode(plain.serialize().to_pybytes()).decode()
        writer.add_key_value_metadata({"ARROW:schema": arrow_schema, "faultset:schema_version": str(SCHEMA_VERSION)})


def open_parquet(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a Parquet file; raise DataError that names it when it is missing, truncated or damaged."""
    with damage_named(path):
        return pq.ParquetFile(path, read_dictionary=list(dictionaries))


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged or missing Parquet file into one sentence that names it."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} is missing; restore it or collect the episode again") from None
    except (pa.ArrowInvalid, pa.ArrowException, OSError, EOFError) as error:
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise DataError(
            f"{path} is truncated or damaged ({reason}); restore it or collect the episode again"
        ) from error


@contextmanager
def disk_full_named(folder: Path) -> Iterator[None]:
    """Turn a full disk into one DataError that names the folder; let other errors pass."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)
        if not full:
            raise
        raise DataError(
            f"no space left on the disk of {folder}; free some or choose another folder, then run again"
        ) from error
