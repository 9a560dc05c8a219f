"""Spans of foreign data: ids in one form, and what a span's place in its trace tells where the source does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.datasets.imports.columns import coded, words_of

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

ID_COLUMNS = ("trace_id", "span_id", "parent_span_id")
_OTHER_FORM = r"^[0-9a-fA-F-]*[A-F-][0-9a-fA-F-]*$"
_KINDS = ("internal", "client", "server")


def kinds_and_peers(
    span_ids: pa.ChunkedArray | pa.Array, parent_ids: pa.ChunkedArray | pa.Array, service: pa.ChunkedArray
) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
    """Return kind and peer service of every span, read from the shape of the traces.

    A root, and a span whose parent belongs to another service, is a server's. A span with a child in another service
    is a client's call of that service. All else is internal.

    Parameters
    ----------
    span_ids, parent_ids
        Ids; a null parent means a root.
    service
        Service of each span.
    """
    ids = normalise_ids(span_ids)
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    rows = len(ids)
    parent = pc.index_in(normalise_ids(parent_ids), value_set=ids).fill_null(-1).to_numpy().astype(np.int64)
    column = words_of(service).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), [])
    owner = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    found = parent >= 0
    crosses = np.zeros(rows, dtype=bool)
    crosses[found] = owner[found] != owner[parent[found]]
    is_root = pc.is_null(parent_ids).to_numpy() if rows else np.zeros(0, dtype=bool)
    peer = np.full(rows, -1, dtype=np.int32)
    callers = np.flatnonzero(crosses & (owner >= 0))
    peer[parent[callers]] = owner[callers]
    kind = np.where(crosses | is_root, 2, np.where(peer >= 0, 1, 0)).astype(np.int32)
    # A server that calls without a span of its own for it keeps its kind; the call shows in the child.
    peer[kind == 2] = -1
    words = [*column.dictionary.to_pylist(), None]
    return coded(_KINDS, kind), coded(words, np.where(peer < 0, len(words) - 1, peer).astype(np.int32))


def normalise_ids(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Return hex ids in lower case and without dashes; other texts stay as they are.

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


def normalise_texts(ids: pd.Series) -> pd.Series:
    """Return a pandas column of ids as `normalise_ids` does."""
    return normalise_ids(pa.array(ids, pa.string(), from_pandas=True)).to_pandas().set_axis(ids.index)


def with_normalised_ids(pieces: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch | pa.Table]:
    """Yield pieces of a table with the ids of traces and spans in one form."""
    for piece in pieces:
        for name in ID_COLUMNS:
            position = piece.schema.get_field_index(name)
            if position >= 0:
                piece = piece.set_column(position, name, normalise_ids(piece.column(position)))
        yield piece
