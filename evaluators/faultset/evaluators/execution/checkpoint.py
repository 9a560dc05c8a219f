"""The checkpoint of an evaluation: rows are stored as they come in, so that an interrupted one can go on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa

from faultset.core.errors import UsageError
from faultset.core.files import replacing
from faultset.evaluators.results.rows import ROWS_VERSION, ResultRow, compressed, decompressed
from faultset.evaluators.results.truth import Truth

CHECKPOINT_FILE = "results.partial.arrows"
_HEAD = struct.Struct("<QI")
"""Before every part of the file: its length and CRC-32."""
_MOST_BYTES = 1 << 30
_CHANGED = {
    "digest": "the dataset",
    "code": "faultset itself",
    "split": "the split",
    "train": "the training dataset",
    "rows": "the layout of results",
}


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
    codes
        Baseline -> identity of its code. Rows of a baseline with other code are not used, nor are those whose alarm
        came from one.

    Attributes
    ----------
    changed
        What has changed since the rows were made that `begin` left out; empty when it left out none.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], codes: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._path = folder / CHECKPOINT_FILE
        self._about = {"rows": ROWS_VERSION, **about}
        self.codes = dict(codes or {})
        self._lock: int | None = None
        self._sink: IO[bytes] | None = None
        self.changed: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        # no link is followed: the folder may have come with a dataset
        try:
            self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = "is a link" if error.errno == errno.ELOOP else f"cannot be opened ({error.strerror})"
            raise UsageError(f"{self._lock_path} {reason}; remove it or choose another --out") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(
                f"another evaluation writes to {self._path.parent}; wait for it or choose another --out"
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._lock_path.unlink()
            os.close(self._lock)

    @property
    def _lock_path(self) -> Path:
        return self._path.parent / f".{CHECKPOINT_FILE}.lock"

    def begin(self, truths: Mapping[str, Truth], *, fresh: bool = False) -> list[ResultRow]:
        """Return the rows that an interrupted evaluation has left, and continue from them."""
        kept = [] if fresh else self._left(truths)
        with replacing(self._path, durable=False) as temporary:
            self._sink = temporary.open("wb")
            self._write(json.dumps({"about": self._about, "codes": self.codes}).encode())
            if kept:
                self.add(kept)
        return kept

    def add(self, rows: Sequence[ResultRow]) -> None:
        """Store a batch; what was added survives the end of this process."""
        if rows:
            self._write(compressed(rows))

    def remove(self) -> None:
        """Remove the file: the results are complete and stored."""
        self._close()
        self._path.unlink(missing_ok=True)

    def _write(self, part: bytes) -> None:
        assert self._sink is not None
        self._sink.write(_HEAD.pack(len(part), zlib.crc32(part)) + part)
        self._sink.flush()

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _left(self, truths: Mapping[str, Truth]) -> list[ResultRow]:
        parts = _parts(self._path)
        try:
            head = json.loads(next(parts))
            about, codes = dict(head["about"]), dict(head["codes"])
        except (StopIteration, ValueError, KeyError, TypeError):
            return []
        if about != self._about:
            self.changed = tuple(_CHANGED[name] for name in _CHANGED if about.get(name) != self._about.get(name))
            return []
        rows: dict[Any, ResultRow] = {}
        for part in parts:
            with contextlib.suppress(pa.ArrowException, OSError, KeyError, ValueError, TypeError):
                rows |= {row.key: row for row in decompressed(part, truths)}
        other = {name for name, code in self.codes.items() if codes.get(name, code) != code}
        stale = {key for key, row in rows.items() if row.baseline in other or row.alarm_source in other}
        self.changed = tuple(f"the code of {name}" for name in sorted(other)) if stale else ()
        self.codes = codes | self.codes
        return [row for key, row in rows.items() if key not in stale]


def _parts(path: Path) -> Iterator[bytes]:
    """Yield the parts that were written whole and not altered, up to the first that was not."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError:
        return
    with file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, checksum = _HEAD.unpack(head)
            part = file.read(length) if length <= _MOST_BYTES else b""
            if len(part) != length or zlib.crc32(part) != checksum:
                return
            yield part
