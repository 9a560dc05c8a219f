"""The original PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from store_server import StoreServer, outcome, outcomes_after, running

from faultset.collector.runtime.processes import end_work
from faultset.collector.runtime.stores.driver import AdminAction, StoreAdministrator, StoreClient
from faultset.collector.runtime.stores.original_driver import find_program
from faultset.collector.runtime.stores.postgresql import OriginalPostgresDriver
from faultset.core.errors import PlatformError

pytest.importorskip("asyncpg", reason="the extra stores is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_program("initdb") is None, reason="no PostgreSQL is installed here"),
]
DRIVER = OriginalPostgresDriver()
Server = StoreServer[StoreClient]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Server(DRIVER, tmp_path_factory.mktemp("postgresql"))) as started:
        yield started


@pytest.fixture
def administrator(server: Server) -> StoreAdministrator:
    return server.administrator


def test_documents_are_written_once_and_read_in_the_order_of_the_keys(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        empty = await client.is_empty("read")
        await client.insert("read", {"a": "1", "b": "2"})
        await client.insert("read", {"a": "3"})
        return [empty, await client.is_empty("read"), await client.find_many("read", ["b", "x", "a"])]

    assert server.use(work) == [True, False, ["2", None, "3"]]


def test_appended_documents_keep_their_order(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        there = await client.has_appended("appended", "k")
        await client.append_all("appended", [("k", "1"), ("l", "9"), ("k", "2")])
        await client.append("appended", "k", "3")
        return [there, await client.find_appended("appended", "k"), await client.find_appended("appended", "k", 2)]

    assert server.use(work) == [False, ["1", "2", "3"], ["2", "3"]]


@pytest.mark.parametrize(
    ("action", "undo", "refused"),
    [
        ("revoke-writing", "grant-rights", "rights: 42501: permission denied for table kept"),
        ("revoke-rights", "grant-rights", "rights: 42501: permission denied for schema public"),
        ("require-password", "set-password", 'login: 28P01: password authentication failed for user "app"'),
        ("remove-account", "create-account", 'login: 28P01: password authentication failed for user "app"'),
    ],
)
def test_what_the_administrator_takes_is_refused_in_the_servers_words_and_can_be_given_back(
    server: Server, action: AdminAction, undo: AdminAction, refused: str
) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        return await outcomes_after((action, undo), server, lambda one: one.insert("kept", {"a": "2"}))

    assert server.use(work) == [refused, "ok"]


def test_a_read_only_account_reads(server: Server, administrator: StoreAdministrator) -> None:
    async def work(client: StoreClient) -> list[Any]:
        await client.insert("kept", {"a": "1"})
        await server.administer("revoke-writing")
        found = [await client.find("kept", "a"), await asyncio.to_thread(administrator.state, None)]
        await server.administer("grant-rights")
        return found

    read, state = server.use(work)
    assert read == "1"
    assert "permission denied" in state["write_refused"]
    assert administrator.state(None)["write_refused"] == ""


def test_files_that_may_not_grow_refuse_rows_until_they_may(server: Server, administrator: StoreAdministrator) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        before = len(await client.find_all("kept"))
        await asyncio.to_thread(administrator.limit_files, 700)
        refused = [await outcome(client.insert("kept", {f"row-{n}": "y" * 300})) for n in range(60)][-1]
        assert len(await client.find_all("kept")) >= before
        await asyncio.to_thread(administrator.free_files)
        return [refused, await outcome(client.insert("kept", {"b": "1"}))]

    refused, after = server.use(work)
    assert "53100: could not extend file" in refused
    assert after == "ok"
    assert administrator.state(None)["file_limit"] is None


def test_locked_tables_let_others_wait(server: Server, administrator: StoreAdministrator, tmp_path: Path) -> None:
    async def work(client: StoreClient) -> list[float]:
        await client.insert("kept", {"a": "1"})
        await asyncio.to_thread(administrator.lock, on_ms=1000, off_ms=200, seconds=20, pid_file=tmp_path / "pid")
        waits = []
        for _ in range(20):
            begun = time.monotonic()
            await client.find("kept", "a")
            waits.append(time.monotonic() - begun)
            await asyncio.sleep(0.1)
            if waits[-1] > 0.4:
                break
        end_work(tmp_path / "pid")
        return waits

    assert server.use(work)[-1] > 0.4


def test_a_killed_server_begins_again_with_what_it_had(server: Server) -> None:
    async def write(client: StoreClient) -> None:
        await client.insert("kept", {"survivor": "1"})
        await asyncio.sleep(1.0)

    server.use(write)
    server.stop()
    assert DRIVER.is_prepared(server.folder)
    server.start()
    assert server.use(lambda client: client.find("kept", "survivor")) == "1"


def test_more_clients_than_allowed_are_refused_in_the_servers_words(server: Server) -> None:
    async def work(client: StoreClient) -> str:
        second = server.client()
        return await outcome(second.log_in())

    server.stop()
    server.limits = {"max_clients": 1}
    server.start()
    try:
        assert "too many clients already" in (found := server.use(work)) or "reserved" in found
    finally:
        server.stop()
        server.limits = {}
        server.start()


def test_messages_are_not_its_business(administrator: StoreAdministrator) -> None:
    with pytest.raises(PlatformError, match="has no messages"):
        administrator.publish_unreadable("orders")
