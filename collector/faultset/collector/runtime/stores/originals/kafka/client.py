"""Client of Kafka by its own protocol, with the library aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.stores.broker import BrokerMessage
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress, StoreDriver, StoreError
from faultset.collector.runtime.stores.originals.client import OriginalClient
from faultset.collector.runtime.stores.originals.kafka.connector import BrokerConnector
from faultset.collector.runtime.stores.originals.kafka.consumer import BODY, GroupConsumer

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

T = TypeVar("T")
_STOP_S = 2.0


class _Publisher:
    """A producer of the library that is connected."""

    def __init__(self, store: StoreAddress, context: ClientContext):
        self.connector = BrokerConnector(store, context, "producer")
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect; raise StoreError."""
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(acks="all", **self.connector.options)
        await self.connector.run(self._producer.start())

    async def send(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        """Publish messages, and wait until the broker has them."""
        producer = self._producer
        assert producer is not None
        sent = [
            await producer.send(topic, value=message.get(BODY, "").encode(), headers=_headers(message))
            for message in messages
        ]
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def stop(self) -> None:
        """Let go of the broker."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_STOP_S):
                    await producer.stop()
        self.connector.close()


class KafkaClient(OriginalClient):
    """See `BrokerClient`.

    What failed for another reason than a refusal is made anew with its next use: a producer, or a member of a group.
    """

    def __init__(self, driver: StoreDriver, store: StoreAddress, context: ClientContext):
        super().__init__(driver, store, context)
        self._publisher: _Publisher | None = None
        self._connecting = asyncio.Lock()
        self._members: dict[tuple[str, str], GroupConsumer] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    async def log_in(self) -> None:
        """Make a connection and keep it for the next command; raise StoreError."""
        await self._connected()

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        """Add messages to a topic."""
        if not messages:
            return
        with self.measured("produce"):
            publisher = await self._connected()
            try:
                await publisher.connector.run(publisher.send(topic, messages))
            except StoreError as error:
                if error.kind not in ("rights", "other") and self._publisher is publisher:
                    self._publisher = None
                    self._later(publisher.stop())
                raise

    async def join(self, topic: str, group: str) -> None:
        """Become a member of a group; nothing happens when there is one."""
        if (topic, group) in self._members:
            return
        member = GroupConsumer(self.store, self.context, topic, group)
        try:
            with self.measured("join"):
                await member.start()
        except BaseException:
            self._later(member.stop())
            raise
        self._members[topic, group] = member

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        """Return messages that no member of the group was given before; wait for the first, but not for ever."""
        return await self._use("fetch", topic, group, self._member(topic, group).take(count=count, wait_s=wait_s))

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        """Return messages that this member was given long ago and has not acknowledged."""
        return self._member(topic, group).take_overdue(count=count, idle_s=idle_s)

    async def has(self, topic: str, identity: str) -> bool:
        """Say whether a topic still has a message."""
        for joined, group in self._members:
            if joined == topic:
                return await self._use("list_offsets", topic, group, self._member(topic, group).has(identity))
        raise StoreError("other", f"no group of {topic} was joined")

    async def acknowledge(self, topic: str, group: str, identities: Sequence[str]) -> None:
        """Say that messages need not be given out again."""
        await self._use("commit", topic, group, self._member(topic, group).acknowledge(identities))

    async def lag(self, topic: str, group: str) -> int:
        """Return how many messages the group has not acknowledged."""
        return await self._use("list_offsets", topic, group, self._member(topic, group).lag())

    async def close(self) -> None:
        """Leave the groups and let go of the broker."""
        members, publisher = [*self._members.values()], self._publisher
        self._members.clear()
        self._publisher = None
        stopping = [member.stop() for member in members]
        await asyncio.gather(*stopping, *([] if publisher is None else [publisher.stop()]), *self._stopping)

    async def _connected(self) -> _Publisher:
        async with self._connecting:
            if self._publisher is None:
                made = _Publisher(self.store, self.context)
                try:
                    await made.start()
                except BaseException:
                    self._later(made.stop())
                    raise
                self._publisher = made
            return self._publisher

    def _member(self, topic: str, group: str) -> GroupConsumer:
        if (topic, group) not in self._members:
            raise StoreError("other", f"the group {group} of {topic} was not joined")
        return self._members[topic, group]

    async def _use(self, name: str, topic: str, group: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            with self.measured(name):
                return await work
        except StoreError as error:
            member = None if error.kind in ("rights", "other") else self._members.pop((topic, group), None)
            if member is not None:
                self._later(member.stop())
            raise

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)


def _headers(message: Mapping[str, str]) -> list[tuple[str, bytes]]:
    return [(name, value.encode()) for name, value in message.items() if name != BODY]
