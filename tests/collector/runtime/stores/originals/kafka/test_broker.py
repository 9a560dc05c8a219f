"""Apache Kafka itself, by its own protocol."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from store_server import StoreServer, outcome, running

from faultset.collector.runtime.administration.kafka_store import KafkaAdministration
from faultset.collector.runtime.stores.broker import BrokerClient
from faultset.collector.runtime.stores.driver import AdminAction
from faultset.collector.runtime.stores.originals.kafka.driver import OriginalKafkaDriver
from faultset.collector.runtime.stores.originals.kafka.installation import find_installation
from faultset.core.errors import PlatformError

pytest.importorskip("aiokafka", reason="the extra stores is not installed")


def _missing() -> str:
    try:
        find_installation()
    except PlatformError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_missing()), reason=_missing())]
DRIVER = OriginalKafkaDriver()
Server = StoreServer[BrokerClient]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(Server(DRIVER, tmp_path_factory.mktemp("kafka"), has_usual_port=True)) as started:
        yield started


@pytest.fixture
def administration(server: Server) -> KafkaAdministration:
    return KafkaAdministration(server.access)


async def taken(client: BrokerClient, topic: str, group: str, count: int) -> list[Any]:
    """Take so many messages, or what there is within a while."""
    found: list[Any] = []
    deadline = time.monotonic() + 15
    while len(found) < count and time.monotonic() < deadline:
        found += await client.take(topic, group, "m", count=count - len(found), wait_s=0.5)
    return found


def test_each_group_gets_all_messages_with_their_fields_and_its_lag_falls_as_it_acknowledges(server: Server) -> None:
    async def work(client: BrokerClient) -> None:
        await client.publish("a", [{"body": "1", "traceparent": "00-x"}, {"body": "2"}])
        for group in ("first", "second"):
            await client.join("a", group)
            messages = await taken(client, "a", group, 2)
            assert [one.fields for one in messages] == [{"body": "1", "traceparent": "00-x"}, {"body": "2"}]
            assert [one.identity for one in messages] == ["a-0@0", "a-0@1"]
            assert await client.lag("a", group) == 2
            await client.acknowledge("a", group, [messages[0].identity, messages[1].identity])
            assert await client.lag("a", group) == 0
        assert await client.take("a", "first", "m", count=9, wait_s=0.2) == []

    server.use(work)


def test_a_topic_is_made_when_a_group_joins(server: Server) -> None:
    async def work(client: BrokerClient) -> int:
        await client.join("early", "g")
        return await client.lag("early", "g")

    assert server.use(work) == 0


def test_what_is_not_acknowledged_is_given_again_to_the_member_and_to_its_successor(server: Server) -> None:
    async def begin(client: BrokerClient) -> None:
        await client.publish("b", [{"body": str(number)} for number in range(3)])
        await client.join("b", "g")
        first, _, third = await taken(client, "b", "g", 3)
        await client.acknowledge("b", "g", [first.identity, third.identity])
        (again,) = await client.take_over("b", "g", "m", count=9, idle_s=0.0)
        assert again.fields["body"] == "1"
        await client.take("b", "g", "m", count=1, wait_s=0.1)
        assert await client.lag("b", "g") == 2

    async def go_on(client: BrokerClient) -> list[str]:
        await client.join("b", "g")
        return [one.fields["body"] for one in await taken(client, "b", "g", 2)]

    server.use(begin)
    assert server.use(go_on) == ["1", "2"]


def test_another_member_goes_on_where_one_has_left(server: Server) -> None:
    async def work(client: BrokerClient) -> None:
        await client.publish("g", [{"body": "1"}])
        await client.join("g", "g")
        (first,) = await taken(client, "g", "g", 1)
        await client.acknowledge("g", "g", [first.identity])
        second = server.client()
        await second.join("g", "g")
        await client.publish("g", [{"body": "2"}])
        before = await second.take("g", "g", "m", count=9, wait_s=1.0)
        await client.close()
        after = before or await taken(second, "g", "g", 1)
        await second.close()
        assert [one.fields["body"] for one in after] == ["2"]

    server.use(work)


def test_an_account_without_the_right_to_consume_publishes_until_it_has_it_again(
    server: Server, administration: KafkaAdministration
) -> None:
    async def work(client: BrokerClient) -> None:
        await client.publish("c", [{"body": "1"}])
        await client.join("c", "g")
        assert len(await taken(client, "c", "g", 1)) == 1
        await server.administer("revoke-consuming")
        await client.publish("c", [{"body": "2"}])
        refused = await outcome(taken(client, "c", "g", 1))
        assert refused == "rights: TOPIC_AUTHORIZATION_FAILED: c"
        state = await asyncio.to_thread(administration.state, None)
        assert state["consume_refused"].startswith("TOPIC_AUTHORIZATION_FAILED: ")
        assert state["write_refused"] == ""
        await server.administer("grant-rights")
        assert [one.fields["body"] for one in await taken(client, "c", "g", 1)] == ["2"]
        assert (await asyncio.to_thread(administration.state, None))["consume_refused"] == ""

    server.use(work)


@pytest.mark.parametrize(
    ("action", "undo", "refused"),
    [
        ("revoke-writing", "grant-rights", "rights: TOPIC_AUTHORIZATION_FAILED: d"),
        ("revoke-rights", "grant-rights", "rights: TOPIC_AUTHORIZATION_FAILED: d"),
        ("require-password", "set-password", "login: SASL_AUTHENTICATION_FAILED: Authentication failed during"),
        ("remove-account", "create-account", "login: SASL_AUTHENTICATION_FAILED: Authentication failed during"),
    ],
)
def test_what_the_administrator_takes_is_refused_in_the_brokers_words_and_can_be_given_back(
    server: Server, administration: KafkaAdministration, action: AdminAction, undo: AdminAction, refused: str
) -> None:
    async def work(client: BrokerClient) -> list[str]:
        await client.publish("d", [{"body": "1"}])
        found = []
        for change in (action, undo):
            await server.administer(change)
            await client.close()
            found.append(await outcome(client.publish("d", [{"body": "2"}])))
            if action == "revoke-writing":
                state = await asyncio.to_thread(administration.state, None)
                assert bool(state["write_refused"]) == (change == action)
        return found

    before, after = server.use(work)
    assert before.startswith(refused)
    assert after == "ok"


def test_an_account_that_is_not_there_is_not_made_by_another_action(server: Server) -> None:
    async def work(client: BrokerClient) -> None:
        await server.administer("remove-account")
        try:
            with pytest.raises(PlatformError, match="has no account app; create it first"):
                await server.administer("set-password")
        finally:
            await server.administer("create-account")
        await client.close()
        await client.publish("e", [{"body": "1"}])

    server.use(work)


def test_an_unreadable_message_is_there_until_it_is_removed_and_those_behind_it_stay(
    server: Server, administration: KafkaAdministration
) -> None:
    async def work(client: BrokerClient) -> None:
        await client.publish("f", [{"body": "{}"}])
        await client.join("f", "g")
        await asyncio.to_thread(administration.publish_unreadable, "store.f")
        await client.publish("f", [{"body": '{"a": 1}'}])
        _, unreadable = await taken(client, "f", "g", 2)
        assert await client.has("f", unreadable.identity)
        assert (await asyncio.to_thread(administration.state, "store.f"))["unreadable"] == 1
        await asyncio.to_thread(administration.remove_unreadable, "store.f")
        assert not await client.has("f", unreadable.identity)
        assert (await asyncio.to_thread(administration.state, "store.f"))["unreadable"] == 0
        assert [one.fields["body"] for one in await taken(client, "f", "g", 1)] == ['{"a": 1}']

    server.use(work)


def test_an_emptied_broker_has_no_messages(server: Server) -> None:
    async def work(client: BrokerClient) -> list[Any]:
        await client.publish("h", [{"body": "1"}])
        await server.administer("empty-store")
        await client.publish("h", [{"body": "2"}])
        await client.join("h", "g")
        return [one.fields["body"] for one in await taken(client, "h", "g", 1)]

    assert server.use(work) == ["2"]


def test_a_killed_broker_is_noticed_and_begins_again_with_what_it_had(server: Server) -> None:
    async def work(client: BrokerClient) -> None:
        await client.publish("kept", [{"body": "1"}])
        await client.join("kept", "g")
        server.stop()
        begun = time.monotonic()
        assert (await outcome(taken(client, "kept", "g", 9))).startswith("unreachable: no connection to")
        assert (await outcome(client.publish("kept", [{"body": "2"}]))).startswith("unreachable: no connection to")
        assert (await outcome(client.join("kept", "g"))).startswith("unreachable: no connection to")
        assert time.monotonic() - begun < 12
        server.start()
        while await outcome(client.join("kept", "g")) != "ok":
            await asyncio.sleep(0.5)
        assert [one.fields["body"] for one in await taken(client, "kept", "g", 1)] == ["1"]

    assert DRIVER.is_prepared(server.folder)
    server.use(work)


def test_a_broker_that_does_not_answer_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.runtime.stores.originals.kafka.connector.TIMEOUT_S", 2.0)

    async def work(client: BrokerClient) -> list[str]:
        await client.publish("i", [{"body": "1"}])
        server.process.send_signal(signal.SIGSTOP)
        try:
            return [await outcome(client.publish("i", [{"body": "1"}])), await outcome(client.join("i", "g"))]
        finally:
            server.process.send_signal(signal.SIGCONT)

    publish, join = server.use(work)
    assert publish.startswith("timeout: no answer from")
    assert join.startswith(("timeout: ", "unreachable: "))


def test_the_version_is_that_of_the_installation() -> None:
    assert DRIVER.version().startswith("kafka ")
