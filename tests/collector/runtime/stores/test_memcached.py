"""The original memcached."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_server import CREDENTIALS, StoreServer, outcome, running

from faultset.collector.runtime.stores.driver import StoreAccess, StoreClient, StoreError
from faultset.collector.runtime.stores.memcached import OriginalMemcachedDriver
from faultset.core.errors import PlatformError

DRIVER = OriginalMemcachedDriver()
Server = StoreServer[StoreClient]
needs_server = pytest.mark.skipif(shutil.which("memcached") is None, reason="no memcached is installed here")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running(Server(DRIVER, tmp_path)) as started:
        yield started


@needs_server
def test_values_are_written_and_read_in_the_order_of_the_keys(server: Server) -> None:
    async def work(client: StoreClient) -> list[str | None]:
        await client.set_many({"a": "1", "b": "zwei ü"})
        return await client.get_many(["b", "none", "a", "b"])

    assert server.use(work) == ["zwei ü", None, "1", "zwei ü"]


@needs_server
def test_a_value_that_the_server_refuses_is_an_error_in_its_words(server: Server) -> None:
    async def work(client: StoreClient) -> list[str]:
        return [
            await outcome(client.set_many({"a": "x" * 2_000_000})),
            await outcome(client.set_many({"a": "1"})),
            await outcome(client.get_many(["a b"])),
        ]

    refused, after, malformed = server.use(work)
    assert refused == 'other: memcache: unexpected line in response to "set": "SERVER_ERROR object too large for cache"'
    assert after == "ok"
    assert malformed == "other: malformed: key is too long or contains invalid characters"


@needs_server
def test_clients_connect_from_the_address_of_their_pod(server: Server) -> None:
    async def work(client: StoreClient) -> str:
        return client.idle[0].source

    assert server.use(work).startswith(f"{server.pod_address}:")


@needs_server
def test_of_writes_in_the_background_the_last_one_stays(server: Server) -> None:
    async def work(client: StoreClient) -> list[str | None]:
        for number in range(20):
            client.set_later("a", str(number))
        deadline = time.monotonic() + 10
        while (found := await client.get_many(["a"])) != ["19"] and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return found

    assert server.use(work) == ["19"]


@needs_server
def test_an_emptied_cache_has_nothing(server: Server) -> None:
    async def work(client: StoreClient) -> list[str | None]:
        await client.set_many({"a": "1"})
        await server.administer("empty-store")
        return await client.get_many(["a"])

    assert server.use(work) == [None]


@needs_server
def test_more_clients_than_allowed_are_refused_in_the_servers_words(tmp_path: Path) -> None:
    with running(Server(DRIVER, tmp_path, max_clients=2)) as server:

        async def work(first: StoreClient) -> str:
            second, third = server.client(), server.client()
            await second.log_in()
            with pytest.raises(StoreError) as refused:
                await third.log_in()
            for client in (second, third):
                await client.close()
            return refused.value.kind

        assert server.use(work) in ("other", "broken")


@needs_server
def test_a_server_that_is_gone_cannot_be_reached(server: Server) -> None:
    async def work(client: StoreClient) -> str:
        server.stop()
        with pytest.raises(StoreError) as failure:
            await client.get_many(["a"])
        return failure.value.kind

    assert server.use(work) in ("unreachable", "broken")


def test_there_are_no_accounts_to_administer() -> None:
    with pytest.raises(PlatformError, match="memcached has no accounts"):
        DRIVER.administrator(StoreAccess("127.0.0.1", 1, "app", CREDENTIALS)).perform("revoke-rights")


def test_a_missing_server_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.runtime.stores.original_driver.find_program", lambda name: None)
    with pytest.raises(PlatformError, match=r"needs the program memcached .* install memcached"):
        DRIVER.check()


def test_a_server_that_does_not_run_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "memcached"
    broken.write_text("#!/bin/sh\necho 'libevent is missing' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match=r"memcached --version ended with code 127 \(libevent is missing\)"):
        OriginalMemcachedDriver().version()
