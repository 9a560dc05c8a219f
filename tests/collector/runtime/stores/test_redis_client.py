"""The client of stores over Redis, on a real server."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.http.names import Names
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.stores.driver import (
    Account,
    ClientContext,
    Credentials,
    StoreAddress,
    StoreClient,
    StoreError,
)
from faultset.collector.runtime.stores.redis_cache import RedisCacheDriver

CREDENTIALS = Credentials(administrator="a-secret", application="another-secret")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A hosts file that knows `store`, and the port where it listens."""
    folder, driver = tmp_path_factory.mktemp("store"), RedisCacheDriver()
    address, port = f"127.77.252.{random.randrange(1, 250)}", 20_000 + random.randrange(20_000)
    driver.prepare(folder, account="app", credentials=CREDENTIALS)
    argv = driver.server_argv(folder, address=address)
    argv[argv.index("--port") + 1] = str(port)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    hosts = folder / "hosts.json"
    hosts.write_text(json.dumps({"store": address}))
    try:
        yield hosts, port
    finally:
        process.kill()
        process.wait()


def use(place: tuple[Path, int], work: Callable[[StoreClient], Awaitable[Any]]) -> Any:
    """Do something with a client."""
    hosts, port = place

    async def run() -> Any:
        context = ClientContext(names=Names(str(hosts)), local=None, metrics=Metrics(), texts=ErrorTexts())
        address = StoreAddress(name="store", port=port, database="d", account=Account("app", "another-secret"))
        client = RedisCacheDriver().client(address, context)
        deadline = time.monotonic() + 10
        while True:
            try:
                await client.log_in()
                break
            except StoreError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_sorted_sets_are_written_trimmed_and_read_by_rank(place: tuple[Path, int]) -> None:
    async def work(client: StoreClient) -> list[list[str]]:
        await client.add_sorted({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0}})
        await client.add_sorted({"a": {"z": 3.0}}, at_most=2)
        return [
            await client.range_sorted("a", 0, 9, highest_first=True),
            await client.range_sorted("a", 0, 1, highest_first=False),
            await client.range_sorted("b", 0, 9, highest_first=True),
            await client.range_sorted("none", 0, 9, highest_first=True),
        ]

    assert use(place, work) == [["z", "y"], ["y"], ["x"], []]


def test_appended_documents_are_added_together_and_the_newest_are_found(place: tuple[Path, int]) -> None:
    async def work(client: StoreClient) -> list[list[str]]:
        await client.append_all("c", [("k", "1"), ("k", "2"), ("other", "3"), ("k", "4")])
        return [await client.find_appended("c", "k"), await client.find_appended("c", "k", 2)]

    assert use(place, work) == [["1", "2", "4"], ["2", "4"]]


def test_a_refusal_among_several_commands_is_told_and_the_connection_goes_on(place: tuple[Path, int]) -> None:
    async def work(client: StoreClient) -> list[str | None]:
        await client.set_many({"text": "1", "other": "2"})
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await client.add_sorted({"new": {"x": 1.0}, "text": {"x": 1.0}, "newer": {"x": 1.0}})
        assert await client.range_sorted("newer", 0, 9, highest_first=True) == ["x"]
        return await client.get_many(["text", "other", "none"])

    assert use(place, work) == ["1", "2", None]
