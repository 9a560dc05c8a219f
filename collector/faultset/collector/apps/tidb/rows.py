"""Rows with locks: reads, the two phases of a commit, and abandoned locks."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

from faultset.collector.apps.tidb.placement import physical_s

LOCK_TTL_S = 10.0
"""Lifetime of a lock in seconds, counted from the start of its transaction."""

Row = dict[str, Any]


class DocumentStore(Protocol):
    """Store of rows."""

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        """Return the documents of several keys."""
        ...

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        """Insert or replace documents by key."""
        ...


class RowError(Exception):
    """A row is locked or was written by another transaction; the text begins with the name of the error."""


class TransactionalRows:
    """The rows of one table in a store.

    Parameters
    ----------
    clock
        Returns the time in seconds since 1970.
    """

    def __init__(self, store: DocumentStore, collection: str, clock: Callable[[], float] = time.time):
        self._store, self._collection, self._clock = store, collection, clock
        self._latches: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def read(self, keys: Sequence[str], version: int) -> list[Row | None]:
        """Return rows as last committed; raise RowError if a transaction up to `version` has locked one."""
        rows = await self._find(keys)
        for key, row in zip(keys, rows, strict=True):
            lock = self._get_lock(row)
            if lock and lock["start"] <= version:
                raise RowError(f"KeyIsLocked: key {key} is locked by {lock['start']}")
        return [None if row is None else _drop_lock(row) or None for row in rows]

    async def prewrite(self, changes: Mapping[str, Row], start: int) -> None:
        """Lock rows and store their new contents in the locks.

        Raises
        ------
        RowError
            Another transaction has locked a row, or has committed it after `start`.
        """
        async with self._hold_latches(changes):
            rows_by_key = dict(zip(changes, await self._find(list(changes)), strict=True))
            for key, row in rows_by_key.items():
                lock = self._get_lock(row)
                if lock and lock["start"] != start:
                    raise RowError(f"KeyIsLocked: key {key} is locked by {lock['start']}")
                if row is not None and row.get("commit", 0) > start:
                    raise RowError(f"WriteConflict: key {key} was committed at {row['commit']} after {start}")
            await self._write(
                {
                    key: {**(rows_by_key[key] or {}), "lock": {"start": start, "row": new}}
                    for key, new in changes.items()
                }
            )

    async def commit(self, keys: Sequence[str], start: int, commit: int) -> None:
        """Commit the new contents; raise RowError if a row has neither the transaction's lock nor its commit."""
        async with self._hold_latches(keys):
            rows_by_key = dict(zip(keys, await self._find(keys), strict=True))
            committed: dict[str, Row] = {}
            for key, row in rows_by_key.items():
                lock = (row or {}).get("lock")
                if lock and lock["start"] == start:
                    committed[key] = {**lock["row"], "commit": commit}
                elif row is None or row.get("commit") != commit:
                    raise RowError(f"TxnLockNotFound: key {key} has no lock of {start}")
            if committed:
                await self._write(committed)

    async def roll_back(self, keys: Sequence[str], start: int) -> None:
        """Release the locks of a transaction; rows without a lock are left unchanged."""
        async with self._hold_latches(keys):
            rows_by_key = dict(zip(keys, await self._find(keys), strict=True))
            locked_rows = {
                key: row for key, row in rows_by_key.items() if row and (row.get("lock") or {}).get("start") == start
            }
            if locked_rows:
                await self._write({key: _drop_lock(row) for key, row in locked_rows.items()})

    def _get_lock(self, row: Row | None) -> dict[str, Any] | None:
        lock = (row or {}).get("lock")
        return lock if lock and self._clock() - physical_s(lock["start"]) <= LOCK_TTL_S else None

    async def _find(self, keys: Sequence[str]) -> list[Row | None]:
        texts = await self._store.find_many(self._collection, keys)
        return [json.loads(text) if text else None for text in texts]

    async def _write(self, rows: Mapping[str, Row]) -> None:
        await self._store.insert(self._collection, {key: json.dumps(row) for key, row in rows.items()})

    def _hold_latches(self, keys: Iterable[str]) -> AsyncExitStack:
        return _Latches([self._latches[key] for key in sorted(keys)])


class _Latches(AsyncExitStack):
    """Several latches, always acquired in the same order."""

    def __init__(self, latches: Sequence[asyncio.Lock]):
        super().__init__()
        self._latches = latches

    async def __aenter__(self) -> _Latches:
        try:
            for latch in self._latches:
                await self.enter_async_context(latch)
        except BaseException:
            await self.aclose()
            raise
        return self


def _drop_lock(row: Row) -> Row:
    return {key: value for key, value in row.items() if key != "lock"}
