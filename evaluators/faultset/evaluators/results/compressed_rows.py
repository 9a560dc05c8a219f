"""Rows in compressed parts: how they are kept while an evaluation runs, and stored in its checkpoint."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from faultset.evaluators.results.rows import OWN_COLUMNS, ResultRow, rows_of, table_of
from faultset.evaluators.results.truth import Truth

_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field  # type: ignore[attr-defined]
        for field in OWN_COLUMNS
    ]
)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def compressed(rows: Sequence[ResultRow]) -> bytes:
    """Return rows, without the truth of their episodes, as a compressed Arrow stream: a tenth of what objects take."""
    part = io.BytesIO()
    with pa.ipc.new_stream(part, _SCHEMA, options=_OPTIONS) as writer:
        writer.write_table(table_of(rows, _SCHEMA))
    return part.getvalue()


def decompressed(part: bytes, truths: Mapping[str, Truth]) -> Iterable[ResultRow]:
    """Return the rows of a part, whose episodes are all among `truths`.

    Raises
    ------
    pyarrow.ArrowException, KeyError, ValueError, TypeError
        The part was not made by `compressed`, or not with these episodes.
    """
    return rows_of(pa.ipc.open_stream(part).read_all(), truths)


class CompressedRows:
    """Rows that come in batches, in little memory until all are there."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._truths: dict[str, Truth] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Keep a batch."""
        if rows:
            self._parts.append(compressed(rows))
            for row in rows:
                self._truths.setdefault(row.episode, row.truth)
            self._count += len(rows)

    def rows(self) -> list[ResultRow]:
        """Return all rows as objects; those of an episode share its truth."""
        return [row for part in self._parts for row in decompressed(part, self._truths)]
