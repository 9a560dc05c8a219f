"""What the rows of a telemetry table must be, beyond its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.core.errors import DataError
from faultset.core.printable import printable, quoted
from faultset.core.reading.documents import parse_object
from faultset.datasets.format.context import EpisodeContext
from faultset.datasets.format.ordering import order_of
from faultset.datasets.format.schemas import time_column
from faultset.datasets.format.storage import open_table, translate_damage

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

JSON_COLUMNS = {"metrics": ("labels",), "spans": ("attributes",), "objects": ("state", "data")}
"""Table -> its columns of JSON objects."""
_LARGEST_GROUP = 1 << 30
_LARGEST_TEXT = 4 << 30


def table_problems(path: Path, table: str, context: EpisodeContext) -> Iterator[str]:
    """Say what is wrong with the rows of a table, in sentences without the file's name.

    Rows are read a row group at a time, and repeated texts once, so that a table cannot take more memory than the
    limits of `open_table` allow.

    Raises
    ------
    DataError
        The file cannot be read.
    """
    schema = context.tables[table]
    texts = [field.name for field in schema if _is_text(field.type)]
    outside = unsorted = total = size = 0
    nulls: set[str] = set()
    others: set[str] = set()
    wrong_json: str | None = None
    last: pa.Table | None = None
    with open_table(path, table, schema, texts) as file, translate_damage(path):
        for number in range(file.num_row_groups):
            if file.metadata.row_group(number).total_byte_size > _LARGEST_GROUP:
                yield f"row group {number} is larger than {_LARGEST_GROUP:,} bytes"
                return
            rows = _decoded(file.read_row_group(number), schema, texts)
            if not len(rows):
                continue
            total += len(rows)
            size += sum(_text_bytes(rows[name]) for name in texts)
            if size > _LARGEST_TEXT:
                yield f"its texts take more than {_LARGEST_TEXT:,} bytes"
                return
            nulls |= {field.name for field in schema if not field.nullable and rows[field.name].null_count}
            if nulls:
                continue
            outside += _rows_outside(rows[time_column(table)], context)
            others |= _words_in(rows["episode"], _words_of(rows["episode"]) - {context.episode})
            unsorted += _is_unsorted(table, rows) or (
                last is not None and _is_unsorted(table, pa.concat_tables([last, rows.slice(0, 1)]))
            )
            last = rows.slice(len(rows) - 1)
            wrong_json = wrong_json or _wrong_json(rows, table)
    if nulls:
        yield f"column {', '.join(sorted(nulls))} has nulls, where none may be"
    if others:
        yield f"has rows of another episode ({quoted(min(others))})"
    if outside:
        yield _outside(outside, total)
    if unsorted:
        by = "series and time" if table == "metrics" else "time"
        yield f"its rows are not sorted by {by}"
    if wrong_json:
        yield wrong_json


def written_rows_problems(rows: pa.Table, table: str, context: EpisodeContext) -> Iterator[str]:
    """Say what is wrong with rows that were written a moment ago, as `table_problems` does for a file.

    Parameters
    ----------
    rows
        As `EpisodeWriter.write_table` returned them: it has sorted them and refused nulls and damaged text.
    """
    outside = _rows_outside(rows[time_column(table)], context)
    if outside:
        yield _outside(outside, len(rows))
    wrong_json = _wrong_json(rows, table)
    if wrong_json:
        yield wrong_json
    texts = [rows[field.name] for field in rows.schema if _is_text(field.type)]
    # counting takes longer than everything before, and is rarely needed
    if sum(map(_most_text_bytes, texts)) > _LARGEST_TEXT and sum(map(_text_bytes, texts)) > _LARGEST_TEXT:
        yield f"its texts take more than {_LARGEST_TEXT:,} bytes"


def _outside(rows: int, total: int) -> str:
    return f"{rows} of {total} rows lie outside the view"


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_dictionary(kind)


def _decoded(rows: pa.Table, schema: pa.Schema, texts: list[str]) -> pa.Table:
    """Bring what other writers do into the usual types, and check that texts are UTF-8."""
    columns = []
    for field in schema:
        column = rows[field.name]
        if field.name in texts:
            wanted: pa.DataType = pa.dictionary(pa.int32(), pa.string())
            if column.type != wanted:
                column = column.cast(wanted)
        else:
            wanted = field.type
        column.validate(full=True)
        columns.append(column.unify_dictionaries())
    return pa.table(columns, names=schema.names)


def _is_unsorted(table: str, rows: pa.Table) -> bool:
    order = order_of(table, rows.unify_dictionaries())
    return order is not None and bool((order[1:] < order[:-1]).any())


def _most_text_bytes(column: pa.ChunkedArray) -> int:
    """Return what a column of texts would take if every row had the longest one."""
    if not pa.types.is_dictionary(column.type):
        return _text_bytes(column)
    return sum(len(chunk) * (pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0) for chunk in column.chunks)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes that a column of texts takes when every row has its own."""
    if not pa.types.is_dictionary(column.type):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    total = 0
    for chunk in column.chunks:
        lengths = pc.fill_null(pc.binary_length(chunk.dictionary), 0).to_numpy().astype(np.int64)
        if len(lengths) == 1:
            total += int(lengths[0]) * (len(chunk) - chunk.null_count)
        elif len(lengths):
            rows = np.bincount(chunk.indices.drop_null().to_numpy(), minlength=len(lengths))
            total += int(rows @ lengths)
    return total


def _words_of(column: pa.ChunkedArray) -> set[str]:
    """Return the words of a column; of a dictionary also those that no row has."""
    encoded = pa.types.is_dictionary(column.type)
    found = [chunk.dictionary for chunk in column.chunks] if encoded else [column.unique()]
    return {str(word) for words in found for word in words.drop_null().to_pylist()}


def _words_in(column: pa.ChunkedArray, words: set[str]) -> set[str]:
    """Return those of some words that rows of a column have."""
    return words & {str(word) for word in column.unique().to_pylist()} if words else words


def _rows_outside(times: pa.ChunkedArray, context: EpisodeContext) -> int:
    stamps = times.cast(pa.int64()).to_numpy()
    if not len(stamps) or (stamps.min() >= context.view_start_ns and stamps.max() < context.view_end_ns):
        return 0
    return int(((stamps < context.view_start_ns) | (stamps >= context.view_end_ns)).sum())


def _wrong_json(rows: pa.Table, table: str) -> str | None:
    for name in JSON_COLUMNS.get(table, ()):
        wrong = {text: why for text in _words_of(rows[name]) if (why := _why_no_object(text, name))}
        found = _words_in(rows[name], set(wrong))
        if found:
            return wrong[min(found)]
    return None


def _why_no_object(text: str, column: str) -> str | None:
    try:
        parse_object(text, f"column {column}")
    except DataError as error:
        return printable(str(error).partition(";")[0])
    return None
