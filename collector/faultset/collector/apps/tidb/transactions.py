"""Steps of the SQL layer: statements in transactions with a start and a commit timestamp."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from opentelemetry.context import Context

from faultset.collector.apps.tidb.placement import get_row_range
from faultset.collector.apps.tidb.sessions import (
    COMMIT,
    PD_OPERATIONS,
    PREWRITE,
    READ,
    ROLL_BACK,
    SUM,
    TIKV_OPERATIONS,
    WRITE_CONFLICT,
    KeyValueClient,
    Row,
    group_by_region,
    is_about,
)
from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.spec.steps import CalledOperation, FrozenModel

_MAX_ATTEMPTS = 5


class _Statement(Step):
    """Base class of the statements; calls the placement driver and the stores."""

    placement: str = "pd"
    stores: str = "tikv"
    save: str

    def operations_called(self) -> tuple[CalledOperation, ...]:
        """Return the operations of the placement driver and of the stores."""
        return tuple(
            CalledOperation(service, operation)
            for service, operations in ((self.placement, PD_OPERATIONS), (self.stores, TIKV_OPERATIONS))
            for operation in operations
        )

    def client(self, service: ServiceContext) -> KeyValueClient:
        """Return a client of the key-value cluster."""
        return KeyValueClient(service.caller, self.placement, self.stores, service.log.warning)


class SelectRow(_Statement):
    """Read a row; the result is None if it does not exist."""

    keyword = "select_row"
    row: Any

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the row."""
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
        """Return a function that saves the sum."""
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
        """Return a function that saves the changed rows."""
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


async def read(client: KeyValueClient, keys: list[str], version: int, trace: Context) -> dict[str, Row | None]:
    """Return rows as last committed; wait for locks of transactions up to `version`."""
    rows: dict[str, Row | None] = {}
    for region, region_keys in group_by_region(dict.fromkeys(keys)).items():
        body = {"keys": list(region_keys), "version": version}
        reply = await client.send(region, int(next(iter(region_keys))), READ, body, trace)
        rows.update(zip(region_keys, reply["result"], strict=True))
    return rows


async def change(client: KeyValueClient, amounts: dict[str, float], trace: Context) -> dict[str, Row]:
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


async def _roll_back(client: KeyValueClient, regions: dict[int, dict[str, Row]], start: int, trace: Context) -> None:
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
