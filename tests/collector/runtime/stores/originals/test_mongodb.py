"""A server that speaks MongoDB's protocol: MongoDB itself where it is installed, otherwise FerretDB."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from store_server import StoreServer, outcome, outcomes_after, running

from faultset.collector.runtime.administration.mongodb_store import MongoAdministration
from faultset.collector.runtime.stores.driver import AdminAction, StoreClient
from faultset.collector.runtime.stores.drivers import original_drivers
from faultset.collector.runtime.stores.originals.mongodb import MongoProtocolDriver
from faultset.core.errors import PlatformError

pytest.importorskip("pymongo", reason="the extra stores is not installed")
_CHOSEN = original_drivers()["mongodb"]
assert isinstance(_CHOSEN, MongoProtocolDriver)
DRIVER = _CHOSEN
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(DRIVER.is_missing, reason="neither MongoDB nor FerretDB is installed here"),
]
Server = StoreServer[StoreClient]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Server(DRIVER, tmp_path_factory.mktemp("mongodb"), connect_timeout_s=2.0)) as started:
        yield started


@pytest.fixture
def administration(server: Server) -> MongoAdministration:
    return MongoAdministration(server.access)


def test_documents_are_replaced_under_their_key_and_read_in_the_order_of_the_keys(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        empty = await client.is_empty("read")
        await client.insert("read", {"a": "1", "b": "2"})
        await client.insert("read", {"a": "3", "c": "4"})
        found = [empty, await client.is_empty("read"), await client.find_many("read", ["b", "x", "a"])]
        return [*found, await client.find("read", "c"), sorted(await client.find_all("read"))]

    assert server.use(work) == [True, False, ["2", None, "3"], "4", ["2", "3", "4"]]


def test_appended_documents_keep_their_order(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        there = await client.has_appended("appended", "k")
        await client.append_all("appended", [("k", "1"), ("l", "9"), ("k", "2")])
        await client.append("appended", "k", "3")
        found = [await client.find_appended("appended", "k", newest) for newest in (None, 2, 9)]
        return [there, await client.has_appended("appended", "k"), *found, await client.find_appended("appended", "x")]

    assert server.use(work) == [False, True, ["1", "2", "3"], ["2", "3"], ["1", "2", "3"], []]


def test_a_thousand_documents_are_appended_at_once_twice(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        many = [(str(number % 500), str(number)) for number in range(1000)]
        await client.append_all("many", many)
        await client.append_all("many", many)
        return await client.find_appended("many", "7")

    assert server.use(work) == ["7", "507", "7", "507"]


def test_connections_come_from_the_address_of_the_pod(server: Server) -> None:
    async def work(client: StoreClient) -> set[str]:
        await client.insert("kept", {"a": "1"})
        mine = psutil.Process().net_connections("tcp4")
        return {one.laddr.ip for one in mine if one.raddr and one.raddr.port == server.port}

    assert server.use(work) == {server.pod_address}


@pytest.mark.parametrize(
    ("action", "undo"), [("require-password", "set-password"), ("remove-account", "create-account")]
)
def test_an_account_that_is_taken_is_refused_in_the_servers_words_and_can_be_given_back(
    server: Server, action: AdminAction, undo: AdminAction
) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        return await outcomes_after((action, undo), server, lambda one: one.insert("kept", {"a": "2"}))

    refused, after = server.use(work)
    assert refused == "login: server returned error on SASL authentication step: Authentication failed."
    assert after == "ok"


@pytest.mark.parametrize("action", ["revoke-writing", "revoke-rights"])
def test_rights_are_taken_and_given_back_where_the_server_knows_them(server: Server, action: AdminAction) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        found = []
        for change in (action, "grant-rights"):
            await server.administer(change)
            found.append(await outcome(client.insert("kept", {"a": "2"})))
        return found

    if not DRIVER.has_roles:
        with pytest.raises(PlatformError, match=f"has no roles, so that nobody can {action}; install mongod"):
            server.use(work)
        return
    refused, after = server.use(work)
    assert refused.startswith("rights: not authorized")
    assert after == "ok"


def test_an_action_for_an_account_that_is_not_there_says_so(server: Server) -> None:
    with pytest.raises(PlatformError, match="has no account nobody; create it first"):
        server.administer_account("set-password", "nobody")


@pytest.mark.skipif("files" not in DRIVER.capabilities, reason="MongoDB ends when its files may not grow")
def test_files_that_may_not_grow_refuse_writes_until_they_may(
    server: Server, administration: MongoAdministration
) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        await asyncio.to_thread(administration.limit_files, 700)
        limited = await asyncio.to_thread(administration.state, None)
        refused = [await outcome(client.insert("kept", {f"row-{n}": "y" * 300})) for n in range(5)]
        read = await client.find("kept", "a")
        await asyncio.to_thread(administration.free_files)
        return [str(limited["file_limit"]), *refused, str(read), await outcome(client.insert("kept", {"b": "1"}))]

    limit, *refused, read, after = server.use(work)
    assert int(limit) > 700
    assert all("disk I/O error" in one for one in refused)
    assert (read, after) == ("1", "ok")
    assert administration.state(None) == {"write_refused": "", "consume_refused": "", "file_limit": None}


def test_a_killed_server_begins_again_with_what_it_had(server: Server) -> None:
    async def write(client: StoreClient) -> None:
        await client.insert("kept", {"survivor": "1"})
        await asyncio.sleep(1.0)

    server.use(write)
    server.stop()
    assert DRIVER.is_prepared(server.folder)
    server.start()
    assert server.use(lambda client: client.find("kept", "survivor")) == "1"


def test_a_server_that_is_away_cannot_be_reached_and_then_can(server: Server) -> None:
    async def work(client: StoreClient) -> list[str]:
        await client.insert("kept", {"a": "1"})
        server.stop()
        found = [await outcome(client.find("kept", "a")) for _ in range(2)]
        server.start()
        await asyncio.sleep(1.0)
        return [*found, await outcome(client.find("kept", "a"))]

    *_, away, after = server.use(work)
    assert (away, after) == ("unreachable: no reachable servers", "ok")


def test_an_emptied_store_keeps_its_accounts(server: Server) -> None:
    async def work(client: StoreClient) -> list[Any]:
        await client.insert("kept", {"a": "1"})
        await server.administer("empty-store")
        return [await client.is_empty("kept"), await outcome(client.insert("kept", {"a": "1"}))]

    assert server.use(work) == [True, "ok"]


def test_what_it_cannot_do_is_refused_in_one_sentence(
    server: Server, administration: MongoAdministration, tmp_path: Path
) -> None:
    with pytest.raises(PlatformError, match="mongodb has no messages"):
        administration.publish_unreadable("orders")
    with pytest.raises(PlatformError, match="mongodb has no locks"):
        administration.lock(on_ms=1, off_ms=1, seconds=1, pid_file=tmp_path / "pid")
    with pytest.raises(PlatformError, match="no limit of memory"):
        DRIVER.server_argv(server.folder, address="127.0.0.1", max_memory_kib=300)
    with pytest.raises(PlatformError, match="carries no messages"):
        server.administer_account("revoke-consuming", "app")
