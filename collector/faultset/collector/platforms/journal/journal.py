"""The durable record of every operation on a platform, and of what undoes it.

One JSON line is flushed to disk before an operation and one after it, so that a collector killed at any moment leaves
enough to undo what it did. Records: `intent` (its undo operations are under the key `inverse`), `done`, `failed`,
`undone`, `note`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faultset.collector.platforms.journal.undo_operations import UndoOperation
from faultset.core.json_text import read_json_lines


class Journal:
    """An append-only file of JSON lines, flushed and synced line by line.

    Parameters
    ----------
    path
        The file; lines that are there already are read, and a torn last line is ignored.
    durable
        Wait after every line until the disk has it. What is only in memory need not outlive the process.
    """

    def __init__(self, path: Path, *, durable: bool = True):
        self.path = path
        self._durable = durable
        self.records: list[dict[str, Any]] = read_json_lines(path) if path.exists() else []
        self._next = 1 + max((record["seq"] for record in self.records), default=0)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _write(self, record: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(record, sort_keys=True, default=str).encode() + b"\n")
        if self._durable:
            os.fsync(self._file)
        self.records.append(record)

    @contextmanager
    def operation(
        self,
        verb: str,
        args: Mapping[str, Any],
        undo: Sequence[UndoOperation] | None = None,
        visible: Sequence[str] = (),
    ) -> Iterator[int]:
        """Record an intent before the body runs and its outcome after.

        Parameters
        ----------
        verb, args
            What is about to be done.
        undo
            What undoes it; empty or None when nothing does or nothing has to.
        visible
            Strings that the change itself shows to an operator of the application.
        """
        seq, self._next = self._next, self._next + 1
        intent = {"seq": seq, "state": "intent", "time_ns": time.time_ns(), "verb": verb, "args": dict(args)}
        self._write({**intent, "inverse": list(undo or []), "visible": list(visible)})
        try:
            yield seq
        except BaseException as error:
            self._write({"seq": seq, "state": "failed", "time_ns": time.time_ns(), "error": str(error)})
            raise
        self._write({"seq": seq, "state": "done", "time_ns": time.time_ns()})

    def note(self, what: str, visible: Sequence[str] = (), **details: Any) -> None:
        """Record something that changes nothing, such as the beginning of a phase; `visible` as in `operation`."""
        seq, self._next = self._next, self._next + 1
        record = {"seq": seq, "state": "note", "time_ns": time.time_ns(), "verb": what, "args": details}
        self._write({**record, "visible": list(visible)})

    def undone(self, seq: int) -> None:
        """Record that an operation has been undone."""
        self._write({"seq": seq, "state": "undone", "time_ns": time.time_ns()})

    def open_undo_operations(self) -> list[tuple[int, list[UndoOperation]]]:
        """Return the operations that are still to be undone, newest first, each with what undoes it.

        An operation that failed or has no end counts too: it may have happened.
        """
        return open_undo_operations(self.records)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def open_undo_operations(records: Sequence[Mapping[str, Any]]) -> list[tuple[int, list[UndoOperation]]]:
    """Return `(seq, undo operations)` of what nothing in `records` has undone, newest first."""
    undone = {record["seq"] for record in records if record["state"] == "undone"}
    intents = [record for record in records if record["state"] == "intent" and record["inverse"]]
    return [(record["seq"], list(record["inverse"])) for record in reversed(intents) if record["seq"] not in undone]
