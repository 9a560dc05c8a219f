"""The client of stores over Redis, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_server import StoreServer, running

from faultset.collector.runtime.stores import STORE_DRIVERS
from faultset.collector.runtime.stores.driver import StoreClient, StoreError

Server = StoreServer[StoreClient]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Server(STORE_DRIVERS["redis"], tmp_path_factory.mktemp("store"))) as started:
        yield started


def test_sorted_sets_are_written_trimmed_and_read_by_rank(server: Server) -> None:
    async def work(client: StoreClient) -> list[list[str]]:
        await client.add_sorted({"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0}})
        await client.add_sorted({"a": {"z": 3.0}}, at_most=2)
        return [
            await client.range_sorted("a", 0, 9, highest_first=True),
            await client.range_sorted("a", 0, 1, highest_first=False),
            await client.range_sorted("b", 0, 9, highest_first=True),
            await client.range_sorted("none", 0, 9, highest_first=True),
        ]

    assert server.use(work) == [["z", "y"], ["y"], ["x"], []]


def test_appended_documents_are_added_together_and_the_newest_are_found(server: Server) -> None:
    async def work(client: StoreClient) -> list[list[str]]:
        await client.append_all("c", [("k", "1"), ("k", "2"), ("other", "3"), ("k", "4")])
        return [await client.find_appended("c", "k"), await client.find_appended("c", "k", 2)]

    assert server.use(work) == [["1", "2", "4"], ["2", "4"]]


def test_a_refusal_among_several_commands_is_told_and_the_connection_goes_on(server: Server) -> None:
    async def work(client: StoreClient) -> list[str | None]:
        await client.set_many({"text": "1", "other": "2"})
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await client.add_sorted({"new": {"x": 1.0}, "text": {"x": 1.0}, "newer": {"x": 1.0}})
        assert await client.range_sorted("newer", 0, 9, highest_first=True) == ["x"]
        return await client.get_many(["text", "other", "none"])

    assert server.use(work) == ["1", "2", None]
