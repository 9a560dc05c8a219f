"""The checkpoint of an evaluation: rows are stored as they come in, so that an interrupted one can go on."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa

from faultset.core.errors import UsageError
from faultset.core.files import replacing
from faultset.evaluators.results.rows import OWN_COLUMNS, ROWS_VERSION, ResultRow, rows_of, table_of
from faultset.evaluators.results.truth import Truth

CHECKPOINT_FILE = "results.partial.arrows"
_ABOUT = b"faultset.evaluation"
_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field  # type: ignore[attr-defined]
        for field in OWN_COLUMNS
    ]
)


class Checkpoint:
    """A file that every batch of rows is added to, and that is removed when all are there.

    Use it as a context manager. Only one evaluation can hold the checkpoint of a folder.

    Parameters
    ----------
    folder
        Where the results will be written.
    about
        What rows must have in common to be used again: version of the data, code, split. Rows of an older checkpoint
        with other values are not used.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._path = folder / CHECKPOINT_FILE
        self._about = json.dumps({"rows": ROWS_VERSION, **about}, sort_keys=True)
        self._lock: IO[bytes] | None = None
        self._sink: IO[bytes] | None = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        self._lock = (self._path.parent / f".{CHECKPOINT_FILE}.lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UsageError(
                f"another evaluation writes to {self._path.parent}; wait for it or choose another --out"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self._lock is not None:
            Path(self._lock.name).unlink(missing_ok=True)
            self._lock.close()

    def begin(self, truths: Mapping[str, Truth], *, fresh: bool = False) -> list[ResultRow]:
        """Return the rows that an interrupted evaluation has left, and continue from them."""
        kept = [] if fresh else self._left(truths)
        with replacing(self._path, durable=False) as temporary:
            self._sink = temporary.open("wb")
            self._writer = pa.ipc.new_stream(self._sink, _SCHEMA.with_metadata({_ABOUT: self._about}))
            if kept:
                self.add(kept)
        return kept

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Store a batch; what was added survives the end of this process."""
        if rows:
            assert self._sink is not None
            self._writer.write_table(table_of(rows, _SCHEMA))
            self._sink.flush()

    def remove(self) -> None:
        """Remove the file: the results are complete and stored."""
        self._close()
        self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _left(self, truths: Mapping[str, Truth]) -> list[ResultRow]:
        rows: dict[Any, ResultRow] = {}
        try:
            with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
                if (stream.schema.metadata or {}).get(_ABOUT, b"").decode() != self._about:
                    return []
                while True:
                    part = pa.Table.from_batches([stream.read_next_batch()])
                    for row in rows_of(part, truths):
                        rows[row.key] = row
        except (OSError, EOFError, StopIteration, pa.ArrowException, KeyError):
            # the end of the file, torn or not: what stands before it is whole
            return list(rows.values())
