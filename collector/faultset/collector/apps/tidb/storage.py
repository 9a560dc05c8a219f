"""Steps of the store services: send heartbeats, and read and change rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal
from weakref import WeakKeyDictionary

from opentelemetry.context import Context

from faultset.collector.apps.tidb.placement import get_row_range
from faultset.collector.apps.tidb.rows import RowError, TransactionalRows
from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import environment
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.spec.steps import CalledOperation

_HEARTBEAT_TIMEOUT_S = 5.0

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
        """Return the operation of the placement driver."""
        return (CalledOperation(self.service, self.operation),)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that sends the heartbeat."""
        led_regions = _led_regions.setdefault(service.caller, set())
        address = f"{environment().pod}.{self.peers}"

        async def handle(request: RequestContext) -> None:
            reply = await service.caller.call(
                self.service, self.operation, {"store": address}, Context(), timeout_s=_HEARTBEAT_TIMEOUT_S
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
        """Return a function that saves the rows read."""
        led_regions = _led_regions.setdefault(service.caller, set())
        tables = _tables.setdefault(service.caller, {})
        key = (self.store, self.collection)
        rows = tables.setdefault(key, TransactionalRows(service.stores[self.store], self.collection))
        use: Callable[[TransactionalRows, dict[str, Any]], Awaitable[Any]] = _USES[self.what]

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


async def _read(rows: TransactionalRows, values: dict[str, Any]) -> Any:
    return await rows.read([str(key) for key in values["keys"]], int(values["version"]))


async def _sum(rows: TransactionalRows, values: dict[str, Any]) -> Any:
    first, last = get_row_range(int(values["region"]))
    rows_read = await rows.read([str(key) for key in range(first, last + 1)], int(values["version"]))
    return {"rows": len(rows_read), "balance": sum(row["balance"] for row in rows_read if row)}


async def _prewrite(rows: TransactionalRows, values: dict[str, Any]) -> Any:
    await rows.prewrite(values["rows"], int(values["start"]))


async def _commit(rows: TransactionalRows, values: dict[str, Any]) -> Any:
    await rows.commit([str(key) for key in values["keys"]], int(values["start"]), int(values["commit"]))


async def _roll_back(rows: TransactionalRows, values: dict[str, Any]) -> Any:
    await rows.roll_back([str(key) for key in values["keys"]], int(values["start"]))


_USES: dict[str, Callable[[TransactionalRows, dict[str, Any]], Awaitable[Any]]] = {
    "read": _read,
    "sum": _sum,
    "prewrite": _prewrite,
    "commit": _commit,
    "roll_back": _roll_back,
}
