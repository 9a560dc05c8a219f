"""Transactions on a cluster in memory: all or nothing, whoever leads the regions."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import pytest

from faultset.collector.apps.tidb import operations
from faultset.collector.apps.tidb.operations import (
    COMMIT,
    FIND_REGION,
    PREWRITE,
    READ,
    ROLL_BACK,
    TIMESTAMP,
    KeyValueClient,
    change,
    is_about,
    read,
)
from faultset.collector.apps.tidb.placement import Placement, TimestampOracle
from faultset.collector.apps.tidb.storage import LOCK_TTL_S, RowError, TransactionalRows
from faultset.collector.runtime.http.status import Code, RpcError

NOW, TRACE = 1000.0, None
START = int(NOW * 1000) << 18


class Memory:
    """A store in memory that lets others go first at every request."""

    def __init__(self, rows: int = 1200):
        self.found = {str(row): json.dumps({"id": str(row), "balance": 100.0}) for row in range(1, rows + 1)}

    async def find_many(self, collection: str, keys: Sequence[str]) -> list[str | None]:
        await asyncio.sleep(0)
        return [self.found.get(key) for key in keys]

    async def insert(self, collection: str, documents: Mapping[str, str]) -> None:
        await asyncio.sleep(0)
        self.found.update(documents)

    def balance(self, row: int) -> float:
        return json.loads(self.found[str(row)])["balance"]

    def locks(self) -> list[str]:
        return [key for key, text in self.found.items() if "lock" in json.loads(text)]


class Cluster:
    """What `Caller` is to the client: the operations of pd and tikv, without a network."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.placement, self.oracle = Placement(), TimestampOracle()
        self.led: dict[str, list[int]] = {}
        self.rows = {store: TransactionalRows(cast(Any, self.memory), "account") for store in ("tikv-0", "tikv-1")}
        self.failing: set[str] = set()
        self.calls: list[tuple[str, str | None]] = []
        for _ in range(20):
            for store in self.rows:
                self.led[store] = self.placement.heartbeat(store)

    async def call(
        self, service: str, operation: str, body: Any, trace: None, *, at: str | None = None, **_: Any
    ) -> Any:
        self.calls.append((operation, at))
        if {operation, at} & self.failing:
            raise RpcError(Code.UNAVAILABLE, f"{operation} is down")
        if operation == TIMESTAMP:
            return {"timestamp": self.oracle.next()}
        if operation == FIND_REGION:
            return self.placement.region(body["row"])._asdict()
        assert at is not None
        if body["region"] not in self.led[at]:
            raise RpcError(Code.FAILED_PRECONDITION, f"NotLeader: region {body['region']} is led by another store")
        rows = self.rows[at]
        try:
            if operation == READ:
                return {"result": await rows.read(body["keys"], body["version"])}
            if operation == PREWRITE:
                return await rows.prewrite(body["rows"], body["start"])
            if operation == COMMIT:
                return await rows.commit(body["keys"], body["start"], body["commit"])
            assert operation == ROLL_BACK
            return await rows.roll_back(body["keys"], body["start"])
        except RowError as error:
            raise RpcError(Code.FAILED_PRECONDITION, str(error)) from None


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def client(cluster: Cluster, said: list[str]) -> KeyValueClient:
    return KeyValueClient(cast(Any, cluster), "pd", "tikv", lambda location, text: said.append(text))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "BUDGET_S", 0.05)


async def change_again(client: KeyValueClient, wanted: dict[str, float]) -> None:
    while True:
        try:
            await change(client, dict(wanted), TRACE)
            return
        except RpcError as error:
            if not is_about(error, "WriteConflict"):
                raise


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


@in_loop
async def test_a_transfer_changes_both_rows_with_two_timestamps_and_two_phases(
    cluster: Cluster, client: KeyValueClient
) -> None:
    await change(client, {"1": -30.0, "201": 30.0}, TRACE)
    assert (cluster.memory.balance(1), cluster.memory.balance(201)) == (70.0, 130.0)
    order = [operation for operation, _ in cluster.calls if operation != FIND_REGION]
    assert order == [TIMESTAMP, READ, READ, PREWRITE, PREWRITE, TIMESTAMP, COMMIT, COMMIT]
    assert cluster.memory.locks() == []


@in_loop
async def test_no_money_is_made_or_lost_when_many_change_the_same_rows(
    cluster: Cluster, client: KeyValueClient
) -> None:
    pairs = [(1 + n % 3, 101 + n % 2) for n in range(40)]
    await asyncio.gather(*(change_again(client, {str(one): -1.0, str(two): 1.0}) for one, two in pairs))
    assert [cluster.memory.balance(row) for row in (1, 2, 3, 101, 102)] == [86, 87, 87, 120, 120]


@in_loop
async def test_a_region_that_another_store_leads_by_now_is_found_again(
    cluster: Cluster, client: KeyValueClient
) -> None:
    await read(client, ["1"], cluster.oracle.next(), TRACE)
    leader = cluster.placement.region(1).leader
    other = next(store for store in cluster.rows if store != leader)
    cluster.led = {leader: [], other: list(range(12))}
    cluster.placement._leaders = dict.fromkeys(range(12), other)
    found = await read(client, ["1"], cluster.oracle.next(), TRACE)
    assert found["1"] == {"id": "1", "balance": 100.0}
    assert [at for operation, at in cluster.calls if operation == READ] == [leader, leader, other]


@pytest.mark.usefixtures("impatient")
@in_loop
async def test_a_store_that_is_down_makes_its_regions_unavailable_and_no_others(
    cluster: Cluster, client: KeyValueClient
) -> None:
    down = cluster.placement.region(1).leader
    cluster.failing = {down}
    row = next(row for row in range(1, 1200, 100) if cluster.placement.region(row).leader != down)
    with pytest.raises(RpcError, match=r"ERROR 9005 \(HY000\): Region is unavailable: .* is down"):
        await read(client, ["1"], cluster.oracle.next(), TRACE)
    assert (await read(client, [str(row)], cluster.oracle.next(), TRACE))[str(row)]


@pytest.mark.usefixtures("impatient")
@in_loop
async def test_without_timestamps_nothing_begins(cluster: Cluster, client: KeyValueClient, said: list[str]) -> None:
    cluster.failing = {TIMESTAMP}
    with pytest.raises(RpcError, match=r"ERROR 9001 \(HY000\): PD server timeout"):
        await change(client, {"1": 1.0}, TRACE)
    assert said == ["pdRPC backoffer.maxSleep 50ms is exceeded, errors: /pdpb.PD/Tso is down"]
    assert cluster.memory.balance(1) == 100.0


@pytest.mark.usefixtures("impatient")
@in_loop
async def test_a_transaction_that_fails_between_its_phases_leaves_no_lock(
    cluster: Cluster, client: KeyValueClient
) -> None:
    cluster.failing = {cluster.placement.region(101).leader}
    with pytest.raises(RpcError, match="Region is unavailable"):
        await change(client, {"1": -1.0, "101": 1.0}, TRACE)
    cluster.failing = set()
    assert cluster.memory.locks() == []
    assert cluster.memory.balance(1) == 100.0


@in_loop
async def test_a_row_that_was_written_since_the_start_is_a_conflict() -> None:
    rows = TransactionalRows(cast(Any, Memory()), "account", lambda: NOW)
    await rows.prewrite({"1": {"id": "1", "balance": 5.0}}, START)
    await rows.commit(["1"], START, START + 2)
    with pytest.raises(RowError, match=f"WriteConflict: key 1 was committed at {START + 2} after {START + 1}"):
        await rows.prewrite({"1": {"id": "1", "balance": 6.0}}, START + 1)


@in_loop
async def test_a_lock_holds_back_readers_and_writers_until_it_is_too_old() -> None:
    now = NOW
    rows = TransactionalRows(cast(Any, Memory()), "account", lambda: now)
    await rows.prewrite({"1": {"id": "1", "balance": 5.0}}, START)
    assert await rows.read(["1"], START - 1) == [{"id": "1", "balance": 100.0}]
    with pytest.raises(RowError, match="KeyIsLocked: key 1 is locked"):
        await rows.read(["1"], START + 1)
    with pytest.raises(RowError, match="KeyIsLocked: key 1 is locked"):
        await rows.prewrite({"1": {}}, START + 1)
    now += LOCK_TTL_S + 0.1
    assert await rows.read(["1"], START + 1) == [{"id": "1", "balance": 100.0}]
    await rows.prewrite({"1": {"id": "1", "balance": 7.0}}, START + 1)
    with pytest.raises(RowError, match="TxnLockNotFound: key 1 has no lock"):
        await rows.commit(["1"], START, START + 9)


@in_loop
async def test_a_row_that_is_not_there_is_read_as_nothing_also_while_it_is_locked() -> None:
    rows = TransactionalRows(cast(Any, Memory(1)), "account", lambda: NOW)
    await rows.prewrite({"9": {"id": "9", "balance": 5.0}}, START)
    assert await rows.read(["9"], START - 1) == [None]
    await rows.commit(["9"], START, START + 1)
    await rows.commit(["9"], START, START + 1)
    assert await rows.read(["9"], START + 2) == [{"id": "9", "balance": 5.0, "commit": START + 1}]
