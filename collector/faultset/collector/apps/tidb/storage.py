"""The store services: rows with locks, heartbeats, and steps that read and change rows."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal
from weakref import WeakKeyDictionary

from faultset.collector.apps.tidb.placement import get_row_range, physical_s
from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreClient, StoreError
from faultset.collector.spec.steps import CalledOperation

LOCK_TTL_S = 10.0
"""Lifetime of a lock in seconds, counted from the start of its transaction."""

Row = dict[str, Any]
_HEARTBEAT_TIMEOUT_S = 5.0


class RowError(Exception):
    """A row is locked or was written by another transaction; the text begins with the name of the error."""


class TransactionalRows:
    """The rows of one table in a store; the clock returns the time in seconds since 1970."""

    def __init__(self, store: StoreClient, collection: str, clock: Callable[[], float] = time.time):
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

        Raise RowError if another transaction has locked a row, or has committed it after `start`.
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


_led_regions: WeakKeyDictionary[Caller, set[int]] = WeakKeyDictionary()
_tables: WeakKeyDictionary[Caller, dict[tuple[str, str], TransactionalRows]] = WeakKeyDictionary()


class SendHeartbeat(Step):
    """Report to the placement driver that the store is up, and receive the regions it leads.

    Without a response the store keeps its regions.
    """

    keyword = "send_heartbeat"
    service: str
    operation: str
    peers: str
    """Name and port of the headless service, in which each pod of the store has a DNS name."""

    def operations_called(self) -> tuple[CalledOperation, ...]:
        return (CalledOperation(self.service, self.operation),)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        led_regions = _led_regions.setdefault(service.caller, set())
        address = f"{environment().pod}.{self.peers}"

        async def handle(request: RequestContext) -> None:
            reply = await service.caller.call(
                self.service, self.operation, {"store": address}, None, timeout_s=_HEARTBEAT_TIMEOUT_S
            )
            reported_regions = set(reply["regions"])
            for region in sorted(reported_regions - led_regions):
                service.log.write("info", location, f"region is led by this store, region {region}")
            for region in sorted(led_regions - reported_regions):
                service.log.write("info", location, f"region is led by another store, region {region}")
            led_regions.clear()
            led_regions.update(reported_regions)

        return handle


class AccessRows(Step):
    """Read or change rows of a region that the store leads.

    Every request has `region`. Further fields: `read` has `keys` and `version`; `sum` has `version`; `prewrite` has
    `rows` by key and `start`; `commit` has `keys`, `start` and `commit`; `roll_back` has `keys` and `start`.
    """

    keyword = "access_rows"
    what: Literal["read", "sum", "prewrite", "commit", "roll_back"]
    store: str
    collection: str
    save: str = "result"
    span: str

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        led_regions = _led_regions.setdefault(service.caller, set())
        tables = _tables.setdefault(service.caller, {})
        key = (self.store, self.collection)
        rows = tables.setdefault(key, TransactionalRows(service.stores[self.store], self.collection))
        use = _USES[self.what]

        async def handle(request: RequestContext) -> None:
            values = request.values
            region = int(values["region"])
            if region not in led_regions:
                raise RpcError(Code.FAILED_PRECONDITION, f"NotLeader: region {region} is led by another store")
            try:
                with service.store_span(request, self.store, self.span):
                    values[self.save] = await use(rows, values)
            except RowError as error:
                raise RpcError(Code.FAILED_PRECONDITION, str(error)) from None
            except StoreError as error:
                service.log.error(location, f"request to the engine failed, error {error}")
                raise RpcError(Code.INTERNAL, str(error)) from None

        return handle


Values = dict[str, Any]


async def _sum(rows: TransactionalRows, values: Values) -> Any:
    first, last = get_row_range(int(values["region"]))
    rows_read = await rows.read([str(key) for key in range(first, last + 1)], int(values["version"]))
    return {"rows": len(rows_read), "balance": sum(row["balance"] for row in rows_read if row)}


def _get_keys(values: Values) -> list[str]:
    return [str(key) for key in values["keys"]]


_USES: dict[str, Callable[[TransactionalRows, Values], Awaitable[Any]]] = {
    "read": lambda rows, values: rows.read(_get_keys(values), int(values["version"])),
    "sum": _sum,
    "prewrite": lambda rows, values: rows.prewrite(values["rows"], int(values["start"])),
    "commit": lambda rows, values: rows.commit(_get_keys(values), int(values["start"]), int(values["commit"])),
    "roll_back": lambda rows, values: rows.roll_back(_get_keys(values), int(values["start"])),
}
