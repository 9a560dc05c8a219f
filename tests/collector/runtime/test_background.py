"""Consumers of messages, and background errors."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from faultset.collector.runtime.background import BackgroundErrorEmitter, MessageConsumer
from faultset.collector.runtime.context import FlagValues, RequestContext, ServiceContext
from faultset.collector.runtime.http.caller import Caller, CallSettings, ClientContext
from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import Code, ErrorTexts, RpcError
from faultset.collector.runtime.http.tracing import Tracing
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.steps.basic import Publish
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.stores.driver import BrokerMessage, StoreClient, StoreError
from faultset.collector.spec.features import BackgroundErrors, Consumer


class Broker(StoreClient):
    """One topic in memory."""

    def __init__(self) -> None:
        self.driver = SimpleNamespace(system="kafka")  # type: ignore[assignment]
        self.waiting: list[BrokerMessage] = []
        self.given: dict[str, BrokerMessage] = {}
        self.published, self.groups, self.fails, self.removed = 0, set[str](), 0, set[str]()

    async def dial(self) -> Any:
        raise NotImplementedError

    async def publish(self, topic: str, messages: Any) -> None:
        if self.fails:
            raise StoreError("unreachable", "no broker")
        for fields in messages:
            self.published += 1
            self.waiting.append(BrokerMessage(str(self.published), dict(fields)))

    async def join(self, topic: str, group: str) -> None:
        if self.fails:
            self.fails -= 1
            raise StoreError("unreachable", "no broker")
        self.groups.add(group)

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        found, self.waiting = self.waiting[:count], self.waiting[count:]
        self.given |= {one.identity: one for one in found}
        await asyncio.sleep(0.001)
        return found

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        return []

    async def has(self, topic: str, identity: str) -> bool:
        return identity in self.given and identity not in self.removed

    async def acknowledge(self, topic: str, group: str, identities: Any) -> None:
        for identity in identities:
            del self.given[identity]

    async def lag(self, topic: str, group: str) -> int:
        return len(self.waiting) + len(self.given)


class KeepConsumed(Step):
    """Keep what was consumed; refuse some."""

    keyword = "keep_consumed"
    seen: list[Any]

    def compile(self, service: ServiceContext, location: str) -> Any:
        def handle(request: RequestContext) -> None:
            SEEN.append(request.values["id"])
            if request.values["id"] == "bad":
                raise RpcError(Code.INTERNAL, "refused")

        return handle


SEEN: list[str] = []


class ErrorLog:
    def __init__(self) -> None:
        self.errors: list[str] = []

    def trace(self, location: str, message: str) -> None:
        pass

    def error(self, location: str, message: str) -> None:
        self.errors.append(message)


def service_with(broker: Broker) -> Any:
    return SimpleNamespace(
        stores={"queue": broker},
        log=ErrorLog(),
        metrics=Metrics(),
        persona=Persona(),
        flags=FlagValues(None),
        tracing=None,
    )


async def consumed(broker: Broker, service: Any, count: int, **fields: Any) -> None:
    consumer = Consumer(store="queue", topic="orders", steps=(KeepConsumed(seen=[]),), **fields)
    member = MessageConsumer("orders", consumer, service, member="pod-1", group="worker")
    task = asyncio.create_task(member.run())
    async with asyncio.timeout(5):
        while len(SEEN) < count:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
    task.cancel()


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def messages(*ids: str) -> list[dict[str, str]]:
    return [{"body": json.dumps({"id": one})} for one in ids]


@pytest.mark.parametrize(("on_failure", "left"), [("skip", set[str]()), ("redeliver", {"bad"})])
def test_messages_are_acknowledged_after_their_steps(on_failure: str, left: set[str]) -> None:
    broker = Broker()
    service = service_with(broker)
    asyncio.run(broker.publish("orders", messages("a", "bad", "c")))
    asyncio.run(consumed(broker, service, 3, on_failure=on_failure))
    assert SEEN == ["a", "bad", "c"]
    assert broker.groups == {"worker"}
    assert {json.loads(one.fields["body"])["id"] for one in broker.given.values()} == left
    assert service.log.errors == ["orders failed: rpc error: code = Internal desc = refused"]
    exposition = service.metrics.exposition().decode()
    labels = 'messaging_client_consumed_messages_total{destination="orders",group="worker",messaging_system="kafka"}'
    assert f"{labels} 3.0" in exposition
    assert 'kafka_consumer_group_lag{group="worker",topic="orders"}' in exposition


def test_a_broker_that_fails_is_told_once_and_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faultset.collector.runtime.background._RETRY_PAUSE_S", 0.01)
    broker = Broker()
    service = service_with(broker)
    asyncio.run(broker.publish("orders", messages("a")))
    broker.fails = 3
    asyncio.run(consumed(broker, service, 1))
    assert SEEN == ["a"]
    assert service.log.errors == ["no broker"]


def test_a_broker_that_refuses_messages_still_tells_the_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*about: Any, **options: Any) -> Any:
        raise StoreError("rights", "not authorized")

    broker = Broker()
    monkeypatch.setattr(broker, "take", refuse)
    service = service_with(broker)
    asyncio.run(broker.publish("orders", messages("a", "b")))

    async def run() -> None:
        task = asyncio.create_task(consumed(broker, service, 1))
        async with asyncio.timeout(5):
            while 'topic="orders"} 2.0' not in service.metrics.exposition().decode():
                await asyncio.sleep(0.005)
        task.cancel()

    asyncio.run(run())
    assert service.log.errors == ["not authorized"]


def test_a_message_that_cannot_be_read_is_tried_until_it_is_gone_and_holds_up_those_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("faultset.collector.runtime.background._RETRY_PAUSE_S", 0.01)
    broker = Broker()
    service = service_with(broker)
    asyncio.run(broker.publish("orders", [*messages("a"), {"body": "{broken"}, *messages("c")]))

    async def run() -> None:
        task = asyncio.create_task(consumed(broker, service, 2))
        async with asyncio.timeout(5):
            while len(service.log.errors) < 3:
                await asyncio.sleep(0.005)
        assert SEEN == ["a"]
        broker.removed.add("2")
        await task

    asyncio.run(run())
    assert SEEN == ["a", "c"]
    assert set(service.log.errors) == {"message 2 of orders cannot be parsed: its body is not JSON"}
    assert not broker.given


def publish(service: Any, step: Publish, **values: Any) -> None:
    request = RequestContext(values=values, trace=None)
    asyncio.run(step.compile(service, "here")(request))  # type: ignore[arg-type]


@pytest.mark.parametrize(("times", "count"), [(None, 0), (0, 0), ("x", 0), (1, 1), (100, 100)])
def test_a_message_is_published_as_often_as_it_says(times: Any, count: int) -> None:
    broker = Broker()
    publish(
        service_with(broker), Publish(store="queue", topic="orders", message={"id": "$i"}, times="$n"), i=1, n=times
    )
    assert broker.published == count
    assert all(json.loads(one.fields["body"]) == {"id": 1} for one in broker.waiting)


def test_a_broker_that_fails_fails_the_request_or_only_leaves_a_line() -> None:
    broker = Broker()
    broker.fails = 9
    service = service_with(broker)
    with pytest.raises(RpcError, match="no broker"):
        publish(service, Publish(store="queue", topic="orders", message={}))
    publish(service, Publish(store="queue", topic="orders", message={}, on_error="ignore", error_log="lost: {error}"))
    assert service.log.errors == ["lost: no broker"]


def test_a_failed_upload_is_logged_with_a_stack_trace(capfd: pytest.CaptureFixture[str]) -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(failed_uploads=60.0), Log(Persona()), "main", "127.0.0.1")
    asyncio.run(errors._upload())
    captured = capfd.readouterr()
    assert "upload of usage statistics failed" in captured.out
    assert captured.err.startswith("Traceback")
    assert "ConnectionRefusedError" in captured.err


def test_a_service_without_background_errors_is_always_healthy_and_does_nothing_beside_its_work() -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(), Log(Persona()), "main", "127.0.0.1")
    assert errors.tasks() == []
    assert all(errors.is_healthy() for _ in range(1000))


def test_probes_fail_at_the_given_share() -> None:
    errors = BackgroundErrorEmitter(BackgroundErrors(unhealthy_answers=0.5), Log(Persona()), "main", "127.0.0.1")
    assert 400 < sum(errors.is_healthy() for _ in range(1000)) < 600


@pytest.mark.parametrize(("code", "attempts"), [(Code.DEADLINE_EXCEEDED, 2), (Code.INTERNAL, 1)])
def test_a_hasty_call_is_repeated_with_its_own_time_limit(code: Code, attempts: int) -> None:
    limits: list[float | None] = []
    retries: list[str] = []

    class Failing(Caller):
        async def _call(self, *args: Any, **options: Any) -> Any:
            limits.append(options["timeout_s"])
            if len(limits) == 1:
                raise RpcError(code, "no answer in time")
            return "reply"

    async def call() -> Any:
        caller = Failing(
            ClientContext(names=Names(None), local=None, metrics=Metrics(), texts=ErrorTexts()),
            ports={},
            tracing=Tracing(None),
            settings=CallSettings(timeout_s=3.0, hasty_share=1.0),
            report_retry=lambda callee, error: retries.append(callee),
        )
        return await caller.call("geo", "/geo.Geo/Nearby", {}, None)

    if attempts == 1:
        with pytest.raises(RpcError):
            asyncio.run(call())
    else:
        assert asyncio.run(call()) == "reply"
        assert limits[1] == 3.0
        assert retries == ["geo"]
    assert len(limits) == attempts
    assert limits[0] is not None
    assert limits[0] < 0.01
