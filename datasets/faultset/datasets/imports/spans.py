"""Spans of foreign data: uniform ids, and kinds and peers inferred from the shape of traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from faultset.datasets.imports.columns import encode_codes, encode_words

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute  # type checkers do not see its functions

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
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    rows = len(ids)
    parent = pc.index_in(normalise_ids(parent_ids), value_set=ids).fill_null(-1).to_numpy().astype(np.int64)
    column = encode_words(service).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), [])
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
