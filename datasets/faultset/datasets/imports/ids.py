"""Ids of traces and spans in one form, so that parents and log lines find their spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    import pandas as pd

pc: Any = pyarrow.compute
# Its functions are made at import, where type checkers do not see them.

ID_COLUMNS = ("trace_id", "span_id", "parent_span_id")
_OTHER_FORM = r"^[0-9a-fA-F-]*[A-F-][0-9a-fA-F-]*$"


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
