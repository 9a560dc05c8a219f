"""Read columns of foreign files and build our tables from them."""

from __future__ import annotations

import csv
import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from faultset.datasets.format.storage import as_array
from faultset.datasets.telemetry_formats.log_lines import read_level

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
MALFORMED = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, csv.Error)
"""Errors of reading a file, its text or its structure."""


@contextmanager
def parsing(path: Path, expected: str, remedy: str = "restore the file") -> Iterator[None]:
    """Raise DataError "PATH must EXPECTED (reason); REMEDY" if the block cannot read or parse a file."""
    try:
        yield
    except MALFORMED as error:
        raise DataError(f"{path} must {expected} ({error!r}); {remedy}") from error


def read_json(path: Path) -> Any:
    """Read a JSON file; raise DataError if it is missing or damaged."""
    with parsing(path, "be JSON"):
        return json.loads(path.read_text(encoding="utf-8-sig"))


def epoch_unit(values: npt.ArrayLike) -> tuple[int, str]:
    """Infer the unit of epoch numbers from their median magnitude.

    Returns
    -------
    tuple of int and str
        Nanoseconds per unit, and its name: s, ms, µs or ns.

    Examples
    --------
    >>> epoch_unit([1_660_000_000]), epoch_unit([1_660_000_000_000_000_000])
    ((1000000000, 's'), (1, 'ns'))
    """
    array = np.asarray(values)
    return find_epoch_unit(float(np.median(np.abs(array))) if array.size else 0.0)


def epoch_ns(values: npt.ArrayLike) -> Ints:
    """Convert epoch numbers in one unit to UTC nanoseconds; the median magnitude determines the unit.

    The numbers must not be NaN. Fractions of seconds keep the precision of a double.

    Examples
    --------
    >>> epoch_ns([1_660_000_000.5]).tolist()
    [1660000000500000000]
    """
    array = np.asarray(values)
    factor, _ = epoch_unit(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64) * np.int64(factor)
    # A double cannot hold nanoseconds since 1970, so the fraction is converted separately.
    whole = np.floor(array)
    return whole.astype(np.int64) * np.int64(factor) + np.round((array - whole) * factor).astype(np.int64)


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
    layout = pacsv.ParseOptions(newlines_in_values=newlines, quote_char='"' if _has_quotes(path) else False)
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
                return pacsv.read_csv(path, reading, layout, conversion)
            reading.block_size = _MAX_ROW_BYTES
        return pacsv.read_csv(path, reading, layout, conversion)
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


def encode_words(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    """Return a text column dictionary-encoded in one chunk."""
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if not pa.types.is_dictionary(chunked.type):
        chunked = chunked.cast(pa.string()).dictionary_encode()
    return as_array(chunked.cast(NAME).unify_dictionaries())


def get_text(table: pa.Table, name: str, missing: str | None = None) -> pa.ChunkedArray:
    """Return a column as text, with null cells replaced by `missing`; a file may lack the column."""
    if name not in table.column_names:
        return pa.chunked_array(
            [pa.nulls(len(table), pa.string()) if missing is None else constant(missing, len(table))]
        )
    column = table[name].cast(pa.string())
    return column if missing is None else pc.fill_null(column, missing)


def empty_to_null(column: pa.ChunkedArray | pa.Array) -> Any:
    """Return a text column with nulls for empty cells."""
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def list_words(column: pa.ChunkedArray | pa.Array) -> list[str]:
    """Return the distinct words of a text column without null."""
    return [word for word in pc.unique(column.cast(pa.string())).to_pylist() if word is not None]


def encode_series(column: pd.Series) -> pa.DictionaryArray:
    """Return a pandas text column dictionary-encoded."""
    return pa.array(column, pa.string(), from_pandas=True).dictionary_encode()


def rename_words(
    column: pa.ChunkedArray | pa.Array, names: Mapping[str, str | None] | Callable[[str], str | None]
) -> pa.DictionaryArray:
    """Return a text column with words replaced by a mapping or a function; None makes a word null."""
    encoded = encode_words(column)
    rename = names if callable(names) else lambda word: names.get(word, word)
    words = [None if word is None else rename(word) for word in encoded.dictionary.to_pylist()]
    numbers, distinct = _number_words(words)
    codes = pa.array(numbers, pa.int32(), mask=numbers < 0)
    indices = codes.take(encoded.indices) if len(words) else encoded.indices
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))


def rename_levels(column: pa.ChunkedArray | pa.Array) -> pa.DictionaryArray:
    """Return a text column of log levels with our names; unknown levels are null."""
    return rename_words(column, lambda word: read_level(word.strip().rpartition("_")[2]))


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


ID_COLUMNS = ("trace_id", "span_id", "parent_span_id")
_OTHER_FORM = r"^[0-9a-fA-F-]*[A-F-][0-9a-fA-F-]*$"
_KINDS = ("internal", "client", "server")


def infer_kinds_and_peers(
    span_ids: pa.ChunkedArray | pa.Array,
    parent_ids: pa.ChunkedArray | pa.Array,
    service: pa.ChunkedArray | pa.Array,
) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
    """Return the kind and the peer service of every span.

    Roots and spans whose parent belongs to another service are servers. Spans with a child in another service are
    clients of that service. All others are internal.

    Parameters
    ----------
    span_ids, parent_ids
        Unique ids; a null parent means a root.
    service
        Service of each span.
    """
    ids = normalise_ids(span_ids)
    ids = as_array(ids) if isinstance(ids, pa.ChunkedArray) else ids
    rows = len(ids)
    parent = pc.index_in(normalise_ids(parent_ids), value_set=ids).fill_null(-1).to_numpy().astype(np.int64)
    column = encode_words(service)
    owner = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    has_parent = parent >= 0
    crosses = np.zeros(rows, dtype=bool)
    crosses[has_parent] = owner[has_parent] != owner[parent[has_parent]]
    is_root = pc.is_null(parent_ids).to_numpy(zero_copy_only=False) if rows else np.zeros(0, dtype=bool)
    peer = np.full(rows, -1, dtype=np.int32)
    callers = np.flatnonzero(crosses & (owner >= 0))
    peer[parent[callers]] = owner[callers]
    kind = np.where(crosses | is_root, 2, np.where(peer >= 0, 1, 0)).astype(np.int32)
    # A server that calls without a client span remains a server; its child shows the call.
    peer[kind == 2] = -1
    words = [*column.dictionary.to_pylist(), None]
    return encode_codes(_KINDS, kind), encode_codes(words, np.where(peer < 0, len(words) - 1, peer).astype(np.int32))


def normalise_ids(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return hex ids in lower case without dashes; other texts are unchanged.

    Examples
    --------
    >>> normalise_ids(pa.array(["00AB-cd", "00abcd", "order-7", None])).to_pylist()
    ['00abcd', '00abcd', 'order-7', None]
    """
    text = column.cast(pa.string())
    differs = pc.match_substring_regex(text, _OTHER_FORM)
    if not pc.any(differs).as_py():
        return text
    return pc.if_else(differs, pc.replace_substring(pc.utf8_lower(text), "-", ""), text)


def normalise_id_series(ids: pd.Series) -> pd.Series:
    """Normalise a pandas column of ids with `normalise_ids`."""
    return normalise_ids(pa.array(ids, pa.string(), from_pandas=True)).to_pandas().set_axis(ids.index)


def normalise_id_columns(pieces: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield pieces of a table with normalised trace and span ids."""
    for piece in pieces:
        for name in ID_COLUMNS:
            position = piece.schema.get_field_index(name)
            if position >= 0:
                piece = piece.set_column(position, name, normalise_ids(piece.column(position)))
        yield piece
