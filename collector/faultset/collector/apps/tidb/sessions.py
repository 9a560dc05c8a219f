"""The client of a key-value cluster: timestamps, regions and the stores that lead them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from opentelemetry.context import Context

from faultset.collector.apps.tidb.placement import find_region
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import Code, RpcError

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


class KeyValueClient:
    """Calls the placement driver and the stores that lead regions.

    Parameters
    ----------
    placement, stores
        Names of the services.
    warn
        Called with a location in the modelled source and a text when a statement is abandoned.
    """

    def __init__(self, caller: Caller, placement: str, stores: str, warn: Callable[[str, str], None]):
        self._caller, self._placement, self._stores, self._warn = caller, placement, stores, warn
        self._leaders: dict[int, str] = {}

    async def timestamp(self, trace: Context) -> int:
        """Return a timestamp later than all earlier ones; raise RpcError if none arrives in time."""

        async def send() -> int:
            return int((await self._call_placement(TIMESTAMP, {}, trace))["timestamp"])

        return await self._retry(send, PD_SERVER_TIMEOUT, "pdRPC")

    async def send(self, region: int, row: int, operation: str, body: Mapping[str, Any], trace: Context) -> Any:
        """Send a request to the store that leads a region; retry if the leader has changed.

        Raises
        ------
        RpcError
            No store responds in time, or the store refuses the request.
        """

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

    async def _call_placement(self, operation: str, body: Mapping[str, Any], trace: Context) -> Any:
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
    """Return whether a store's failure has that name."""
    return error.code is Code.FAILED_PRECONDITION and error.description.startswith(f"{name}:")


def group_by_region(keys: Mapping[str, T]) -> dict[int, dict[str, T]]:
    """Group the values of rows by region."""
    by_region: dict[int, dict[str, T]] = {}
    for key, value in keys.items():
        by_region.setdefault(find_region(int(key)), {})[key] = value
    return by_region
