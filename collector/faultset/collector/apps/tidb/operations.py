"""The SQL layer: statements in transactions, and all steps of the application."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from faultset.collector.apps.tidb.placement import (
    AllocateTimestamp,
    FindRegion,
    RegisterStore,
    find_region,
    get_row_range,
)
from faultset.collector.apps.tidb.storage import AccessRows, SendHeartbeat
from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError
from faultset.collector.runtime.http.tracing import Span
from faultset.collector.runtime.steps.step import Step, getter, number
from faultset.collector.spec.steps import CalledOperation, FrozenModel

T = TypeVar("T")
Row = dict[str, Any]

TIMESTAMP, FIND_REGION = "/pdpb.PD/Tso", "/pdpb.PD/GetRegion"
READ, SUM = "/tikvpb.Tikv/KvBatchGet", "/tikvpb.Tikv/Coprocessor"
PREWRITE, COMMIT, ROLL_BACK = "/tikvpb.Tikv/KvPrewrite", "/tikvpb.Tikv/KvCommit", "/tikvpb.Tikv/KvBatchRollback"
PD_OPERATIONS, TIKV_OPERATIONS = (TIMESTAMP, FIND_REGION), (READ, SUM, PREWRITE, COMMIT, ROLL_BACK)

PD_SERVER_TIMEOUT = "ERROR 9001 (HY000): PD server timeout"
REGION_UNAVAILABLE = "ERROR 9005 (HY000): Region is unavailable"
WRITE_CONFLICT = "ERROR 9007 (HY000): Write conflict"

CALL_TIMEOUT_S = 4.0
BUDGET_S = 8.0
"""Seconds that a statement retries before it fails."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.4
_BACK_OFF = "backoff.go:158"
_RETRIED_CODES, _RETRIED_NAMES = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED), ("NotLeader", "KeyIsLocked")
_MAX_ATTEMPTS = 5


class KeyValueClient:
    """Calls the services of the placement driver and of the stores that lead regions.

    When a statement is abandoned, `warn` is called with a location in the modelled source and a message.
    """

    def __init__(self, caller: Caller, placement: str, stores: str, warn: Callable[[str, str], None]):
        self._caller, self._placement, self._stores, self._warn = caller, placement, stores, warn
        self._leaders: dict[int, str] = {}

    async def timestamp(self, trace: Span | None) -> int:
        """Return a timestamp later than all earlier ones; raise RpcError if none arrives in time."""

        async def send() -> int:
            return int((await self._call_placement(TIMESTAMP, {}, trace))["timestamp"])

        return await self._retry(send, PD_SERVER_TIMEOUT, "pdRPC")

    async def send(self, region: int, row: int, operation: str, body: Mapping[str, Any], trace: Span | None) -> Any:
        """Send a request to the store that leads a region; retry if the leader has changed; finally raise RpcError."""

        async def send() -> Any:
            if region not in self._leaders:
                region_info = await self._call_placement(FIND_REGION, {"row": row}, trace)
                self._leaders[region] = str(region_info["leader"])
            leader = self._leaders[region]
            try:
                return await self._caller.call(
                    self._stores, operation, {**body, "region": region}, trace, span=operation,
                    timeout_s=CALL_TIMEOUT_S, at=leader,
                )  # fmt: skip
            except RpcError as error:
                if error.code in _RETRIED_CODES or is_about(error, "NotLeader"):
                    self._leaders.pop(region, None)
                raise

        return await self._retry(send, REGION_UNAVAILABLE, "tikvRPC")

    async def _call_placement(self, operation: str, body: Mapping[str, Any], trace: Span | None) -> Any:
        return await self._caller.call(
            self._placement, operation, body, trace, span=operation, timeout_s=CALL_TIMEOUT_S
        )

    async def _retry(self, send: Callable[[], Awaitable[T]], final_message: str, kind: str) -> T:
        """Retry until a response arrives, with growing pauses; finally raise RpcError."""
        deadline, pause_s = time.monotonic() + BUDGET_S, _FIRST_PAUSE_S
        while True:
            try:
                return await send()
            except RpcError as error:
                if error.code not in _RETRIED_CODES and not any(is_about(error, name) for name in _RETRIED_NAMES):
                    raise
                if time.monotonic() + pause_s > deadline:
                    exceeded_budget = f"{kind} backoffer.maxSleep {BUDGET_S * 1000:.0f}ms is exceeded"
                    self._warn(_BACK_OFF, f"{exceeded_budget}, errors: {error.description}")
                    raise RpcError(Code.UNAVAILABLE, f"{final_message}: {error.description}") from None
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)


def is_about(error: RpcError, name: str) -> bool:
    return error.code is Code.FAILED_PRECONDITION and error.description.startswith(f"{name}:")


def group_by_region(keys: Mapping[str, T]) -> dict[int, dict[str, T]]:
    """Group the values of rows by region."""
    by_region: dict[int, dict[str, T]] = {}
    for key, value in keys.items():
        by_region.setdefault(find_region(int(key)), {})[key] = value
    return by_region


class _Statement(Step):
    """Base class of the statements; calls the placement driver and the stores."""

    placement: str = "pd"
    stores: str = "tikv"
    save: str

    def operations_called(self) -> tuple[CalledOperation, ...]:
        return tuple(
            CalledOperation(service, operation)
            for service, operations in ((self.placement, PD_OPERATIONS), (self.stores, TIKV_OPERATIONS))
            for operation in operations
        )

    def client(self, service: ServiceContext) -> KeyValueClient:
        return KeyValueClient(service.caller, self.placement, self.stores, service.log.warning)


class SelectRow(_Statement):
    """Read a row; the result is None if it does not exist."""

    keyword = "select_row"
    row: Any

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        client, row_of = self.client(service), getter(self.row)

        async def handle(request: RequestContext) -> None:
            row = _row_number(row_of(request.values))
            version = await client.timestamp(request.trace)
            rows = await read(client, [str(row)], version, request.trace)
            request.values[self.save] = rows[str(row)]

        return handle


class SumRows(_Statement):
    """Add up the balances of a region in its store."""

    keyword = "sum_rows"
    region: Any

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        client, read_region = self.client(service), getter(self.region)

        async def handle(request: RequestContext) -> None:
            region = _row_number(read_region(request.values))
            version = await client.timestamp(request.trace)
            row, _ = get_row_range(region)
            reply = await client.send(region, row, SUM, {"version": version}, request.trace)
            request.values[self.save] = reply["result"]

        return handle


class BalanceChange(FrozenModel):
    """The change of a row's balance."""

    row: Any
    by: Any
    sign: int = 1


class ChangeRows(_Statement):
    """Change balances of rows in a two-phase transaction; retry after a conflict."""

    keyword = "change_rows"
    changes: tuple[BalanceChange, ...]

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        client = self.client(service)
        changes = [(getter(row_change.row), getter(row_change.by), row_change.sign) for row_change in self.changes]

        async def handle(request: RequestContext) -> None:
            amounts: dict[str, float] = {}
            for row_of, amount_of, sign in changes:
                key = str(_row_number(row_of(request.values)))
                amounts[key] = amounts.get(key, 0.0) + sign * number(amount_of(request.values))
            for attempts_left in range(_MAX_ATTEMPTS - 1, -1, -1):
                try:
                    request.values[self.save] = await change(client, amounts, request.trace)
                    return
                except RpcError as error:
                    if not (is_about(error, "WriteConflict") or is_about(error, "TxnLockNotFound")):
                        raise
                    if not attempts_left:
                        raise RpcError(Code.FAILED_PRECONDITION, f"{WRITE_CONFLICT}: {error.description}") from None
                    service.log.warning(location, f"retrying the transaction after error: {error.description}")
                await asyncio.sleep(0.01)

        return handle


async def read(client: KeyValueClient, keys: list[str], version: int, trace: Span | None) -> dict[str, Row | None]:
    """Return rows as last committed; wait for locks of transactions up to `version`."""
    rows: dict[str, Row | None] = {}
    for region, region_keys in group_by_region(dict.fromkeys(keys)).items():
        body = {"keys": list(region_keys), "version": version}
        reply = await client.send(region, int(next(iter(region_keys))), READ, body, trace)
        rows.update(zip(region_keys, reply["result"], strict=True))
    return rows


async def change(client: KeyValueClient, amounts: dict[str, float], trace: Span | None) -> dict[str, Row]:
    """Add amounts to balances of rows in a transaction; raise RpcError after a conflict."""
    start = await client.timestamp(trace)
    before = await read(client, list(amounts), start, trace)
    rows = {key: {**(before[key] or {"id": key, "balance": 0.0})} for key in amounts}
    for key, amount in amounts.items():
        rows[key]["balance"] = round(rows[key]["balance"] + amount, 2)
    regions = group_by_region(rows)
    try:
        for region, region_keys in regions.items():
            await client.send(
                region, int(next(iter(region_keys))), PREWRITE, {"rows": region_keys, "start": start}, trace
            )
        commit = await client.timestamp(trace)
    except RpcError:
        await _roll_back(client, regions, start, trace)
        raise
    for region, region_keys in regions.items():
        body = {"keys": list(region_keys), "start": start, "commit": commit}
        await client.send(region, int(next(iter(region_keys))), COMMIT, body, trace)
    return rows


async def _roll_back(
    client: KeyValueClient, regions: dict[int, dict[str, Row]], start: int, trace: Span | None
) -> None:
    for region, region_keys in regions.items():
        with contextlib.suppress(RpcError):
            await client.send(
                region, int(next(iter(region_keys))), ROLL_BACK, {"keys": list(region_keys), "start": start}, trace
            )


def _row_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadRequest(400, f"ERROR 1366 (HY000): Incorrect integer value: '{value}'") from None


STEPS = (AllocateTimestamp, FindRegion, RegisterStore, SendHeartbeat, AccessRows, SelectRow, SumRows, ChangeRows)
"""All steps of this application."""
