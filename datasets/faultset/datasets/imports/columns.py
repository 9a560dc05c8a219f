"""Read columns of foreign files and build our tables from them."""

from __future__ import annotations

import csv
import mmap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from faultset.core.errors import DataError
from faultset.core.files import parquet_path
from faultset.core.printable import first_line
from faultset.core.times import find_epoch_unit
from faultset.datasets.format.schemas import NAME, TABLES, without_episode

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute  # type checkers do not see its functions

_MAX_ROW_BYTES = 16 << 20
"""Maximum bytes of a row; some messages are a megabyte long."""
_NUMBER_BLOCK_BYTES = 2 << 20
"""Block size for files of numbers; reading takes a fifth less time when a block fits into the processor's cache."""
_OBJECT_COLUMNS = ("labels", "attributes")
"""Columns that hold `{}` rather than null where a source has nothing for them."""

Ints = npt.NDArray[np.int64]
Column = tuple[str | None, str, npt.NDArray[np.float64]]
"""Service, metric and samples of one column of a wide frame."""


def epoch_unit(values: npt.ArrayLike) -> str:
    """Infer the unit of epoch numbers from their magnitude: s, ms, µs or ns.

    Examples
    --------
    >>> epoch_unit([1_660_000_000]), epoch_unit([1_660_000_000_000_000_000])
    ('s', 'ns')
    """
    return _find_unit(values)[1]


def epoch_ns(values: npt.ArrayLike) -> Ints:
    """Convert epoch numbers in one unit to UTC nanoseconds; the median magnitude determines the unit.

    The numbers must not be NaN. Fractions of seconds keep the precision of a double.

    Examples
    --------
    >>> epoch_ns([1_660_000_000.5]).tolist()
    [1660000000500000000]
    """
    array = np.asarray(values)
    factor = _find_unit(array)[0]
    if array.dtype.kind in "iu":
        return array.astype(np.int64) * np.int64(factor)
    # A double cannot hold nanoseconds since 1970, so the fraction is converted separately.
    whole = np.floor(array)
    return whole.astype(np.int64) * np.int64(factor) + np.round((array - whole) * factor).astype(np.int64)


def _find_unit(values: npt.ArrayLike) -> tuple[int, str]:
    array = np.asarray(values)
    typical = float(np.median(np.abs(array))) if array.size else 0.0
    return find_epoch_unit(typical)


def read_csv(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    text: Sequence[str] = (),
    doubles: Sequence[str] = (),
    newlines: bool = False,
) -> pa.Table:
    """Read a CSV file; raise DataError if it is missing, empty or damaged.

    A byte-order mark is skipped. Column names may repeat.

    Parameters
    ----------
    columns
        Columns to read if the file has them; all by default.
    text
        Columns to read as text.
    doubles
        Columns to read as doubles. The type of other columns is inferred from the first megabytes.
    newlines
        Whether quoted cells may hold line breaks, which is slower.
    """
    present = csv_header(path)
    chosen = None if columns is None else [name for name in columns if name in present]
    parsing = pacsv.ParseOptions(newlines_in_values=newlines, quote_char='"' if _has_quotes(path) else False)
    conversion = pacsv.ConvertOptions(
        include_columns=chosen,
        column_types=dict.fromkeys(text, pa.string()) | dict.fromkeys(doubles, pa.float64()),
        null_values=["", "NaN", "nan", "NULL", "null", "None", "NA", "N/A", "#N/A"],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    # Small files of numbers need no threads: other processes read other cases at the same time.
    reading = pacsv.ReadOptions(block_size=_MAX_ROW_BYTES, use_threads=not doubles)
    try:
        if doubles:
            reading.block_size = _NUMBER_BLOCK_BYTES
            with suppress(pa.ArrowInvalid):  # if a row is longer than a block
                return pacsv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=conversion)
            reading.block_size = _MAX_ROW_BYTES
        return pacsv.read_csv(path, read_options=reading, parse_options=parsing, convert_options=conversion)
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise _build_read_error(path, error) from error


def _has_quotes(path: Path) -> bool:
    """Return whether cells may be quoted; without quotes, parsing takes a quarter less time."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b'"') >= 0


def csv_header(path: Path) -> list[str]:
    """Return the column names of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            line = file.readline()
    except OSError as error:
        raise _build_read_error(path, error) from error
    if not line.strip():
        raise DataError(f"{path} is empty; leave the case out or restore the file")
    return next(csv.reader([line.rstrip("\r\n")]))


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, or the given columns if it has them; raise DataError if it is damaged."""
    try:
        with pq.ParquetFile(parquet_path(path)) as file:
            present = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
            # Cases are already read in parallel.
            return file.read(columns=present, use_threads=False)
    except (pa.ArrowInvalid, pa.ArrowException, OSError, EOFError) as error:
        raise _build_read_error(path, error) from error


def numbers(column: pa.ChunkedArray | pa.Array, *, origin: str) -> npt.NDArray[np.float64]:
    """Return a column as doubles with NaN for missing and infinite cells; raise DataError for text."""
    return _replace_infinities(_convert_to_doubles(column, origin))


def _convert_to_doubles(column: pa.ChunkedArray | pa.Array, origin: str) -> npt.NDArray[np.float64]:
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if not pa.types.is_float64(column.type):
        try:
            # Integers beyond 2**53, such as nanoseconds, may lose their last digits.
            column = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(f"{origin} holds text where numbers are expected; restore the file") from None
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _replace_infinities(array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, np.nan)


def number_matrix(columns: Mapping[str, pa.ChunkedArray], *, origin: str) -> npt.NDArray[np.float64]:
    """Return columns of the same length as a [column, row] matrix; cells are converted as in `numbers`."""
    if not columns:
        return np.zeros((0, 0))
    if all(pa.types.is_float64(column.type) for column in columns.values()):
        # One large array is faster than hundreds of small ones.
        flat = pa.chunked_array([chunk for column in columns.values() for chunk in column.chunks], pa.float64())
        return _replace_infinities(flat.to_numpy().reshape(len(columns), -1))
    rows = [_convert_to_doubles(column, f"column {name} of {origin}") for name, column in columns.items()]
    return _replace_infinities(np.stack(rows))


def long_metrics(times_ns: Ints, columns: Sequence[Column], *, kind: str = "gauge") -> pa.Table:
    """Return the columns of a wide frame as rows of the table `metrics`, without missing samples.

    Parameters
    ----------
    times_ns
        [n] time of each row of the frame.
    columns
        Service or None, metric, and [n] samples of each column.
    kind
        Kind of all columns: gauge or counter.
    """
    ordered = sorted(columns, key=lambda column: (column[1], column[0] or ""))
    rows = len(times_ns)
    values = np.concatenate([samples for *_, samples in ordered]) if ordered else np.zeros(0)
    times = np.broadcast_to(times_ns, (len(ordered), rows)).ravel()
    lengths: int | Ints = rows
    missing = np.isnan(values)
    if missing.any():
        keep = ~missing
        values, times, lengths = values[keep], times[keep], keep.reshape(-1, rows).sum(axis=1)
    columns_by_name = {
        "time": pa.array(times, pa.int64()),
        "service": _repeat_words([service for service, _, _ in ordered], lengths),
        "metric": _repeat_words([metric for _, metric, _ in ordered], lengths),
        "kind": constant(kind, len(values)),
        "value": pa.array(values),
    }
    return build_table("metrics", columns_by_name)


def build_table(name: str, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Build a table without `episode`; missing columns are null, or `{}` for labels and attributes.

    Parameters
    ----------
    name
        Name of the table.
    columns
        Column name to cells; `time` may be UTC nanoseconds.
    """
    schema = without_episode(TABLES[name])
    rows = len(columns["time"])
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            column = constant("{}", rows) if field.name in _OBJECT_COLUMNS else pa.nulls(rows, field.type)
        arrays.append(column.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def encode_codes(words: Sequence[str | None], codes: npt.NDArray[np.int32]) -> pa.DictionaryArray:
    """Return `words[code]` of every code as a dictionary column; words may repeat and be None."""
    numbers, distinct = _number_words(words)
    return _dictionary(numbers[codes] if len(numbers) else codes, distinct, None in words)


def _repeat_words(words: Sequence[str | None], lengths: int | Ints) -> pa.DictionaryArray:
    numbers, distinct = _number_words(words)
    return _dictionary(np.repeat(numbers, lengths), distinct, None in words)


def _number_words(words: Sequence[str | None]) -> tuple[npt.NDArray[np.int32], list[str]]:
    distinct = list(dict.fromkeys(word for word in words if word is not None))
    code = {word: number for number, word in enumerate(distinct)}
    return np.array([code[word] if word is not None else -1 for word in words], dtype=np.int32), distinct


def _dictionary(codes: npt.NDArray[np.int32], distinct: Sequence[str], with_null: bool) -> pa.DictionaryArray:
    indices = pa.array(codes, pa.int32(), mask=codes < 0 if with_null else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()), safe=False)


def constant(word: str, rows: int) -> pa.DictionaryArray:
    """Return a text column with the same word in all rows."""
    return pa.DictionaryArray.from_arrays(_zeros(rows), pa.array([word]), safe=False)


@lru_cache(maxsize=4)
def _zeros(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, dtype=np.int32))


def nulls(rows: int) -> pa.DictionaryArray:
    """Return a text column of nulls."""
    return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string()), safe=False)


def encode_words(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Return a text column dictionary-encoded, with one dictionary for all chunks."""
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if not pa.types.is_dictionary(chunked.type):
        chunked = chunked.cast(pa.string()).dictionary_encode()
    return chunked.cast(NAME).unify_dictionaries()


def encode_series(column: pd.Series) -> pa.DictionaryArray:
    """Return a pandas text column dictionary-encoded."""
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def rename_words(column: pa.ChunkedArray | pa.Array, names: Mapping[str, str | None]) -> pa.ChunkedArray:
    """Return a text column with some words replaced; None makes it null."""
    chunks = []
    for chunk in encode_words(column).chunks:
        words = [names.get(word, word) if word is not None else None for word in chunk.dictionary.to_pylist()]
        code = {word: number for number, word in enumerate(dict.fromkeys(w for w in words if w is not None))}
        codes = pa.array([code[word] if word is not None else None for word in words], pa.int32())
        indices = codes.take(chunk.indices) if len(words) else chunk.indices
        chunks.append(pa.DictionaryArray.from_arrays(indices, pa.array(list(code), pa.string())))
    return pa.chunked_array(chunks, NAME)


def filter_window(table: pa.Table, column: str, start_ns: int, end_ns: int) -> pa.Table:
    """Return the rows with a time in `[start_ns, end_ns)`."""
    stamps = table[column].cast(pa.int64())
    inside = pc.and_(pc.greater_equal(stamps, start_ns), pc.less(stamps, end_ns))
    mask = pc.fill_null(inside, False)
    return table if pc.all(mask).as_py() in (True, None) else table.filter(mask)


def drop_repeats(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the first row of each combination of keys, in the original order."""
    if any(name not in table.column_names for name in keys) or not len(table):
        return table
    last = table[keys[-1]]
    if pc.count_distinct(last).as_py() == len(last):
        return table
    numbered = table.select(list(keys)).append_column("row", pa.array(np.arange(len(table))))
    first = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "min")])["row_min"]
    return table if len(first) == len(table) else table.take(pa.array(np.sort(first.to_numpy())))


def _build_read_error(path: Path, error: Exception) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing; restore it or leave the case out")
    return DataError(f"{path} cannot be read ({first_line(error)}); restore it or leave the case out")


_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf(inity)?)$"


def parse_numbers(text: pd.Series) -> npt.NDArray[np.float64]:
    """Parse decimal numbers; text that is not a number becomes NaN.

    Surrounding white space is ignored. Numeric columns are returned as doubles.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_numbers(pd.Series(["0.1", " -2e3 ", "n/a", None])).tolist()
    [0.1, -2000.0, nan, nan]
    """
    if text.dtype.kind in "iufb":
        return text.to_numpy(dtype=np.float64)
    trimmed = pc.utf8_trim_whitespace(pa.array(text, pa.string(), from_pandas=True))
    # One cell that is not a number would make Arrow refuse the whole column.
    is_number = pc.match_substring_regex(trimmed, _NUMBER)
    return pc.cast(pc.if_else(is_number, trimmed, None), pa.float64()).to_numpy(zero_copy_only=False)
