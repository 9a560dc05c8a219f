"""One member of a group of consumers of one topic."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.stores.broker import BrokerMessage
from faultset.collector.runtime.stores.driver import ClientContext, StoreAddress
from faultset.collector.runtime.stores.originals.kafka.connector import BrokerConnector
from faultset.collector.runtime.stores.originals.kafka.deliveries import (
    Deliveries,
    MessagePosition,
    identity_of,
    position_of,
)

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

BODY = "body"
"""The field that is a message's value; the others are its headers."""
_COMMIT_S = 1.0
_LONGEST_PROCESSING_MS = 3_600_000
_STOP_S = 2.0
_JOIN_S = 30.0
"""How long a group may take for a new member: it waits ten seconds for one that has gone without leaving."""


class GroupConsumer:
    """A member of a group; what is acknowledged is committed at the end of a batch, and at least once a second."""

    def __init__(self, store: StoreAddress, context: ClientContext, topic: str, group: str):
        self._topic, self._group = topic, group
        self._connector = BrokerConnector(store, context, group)
        self._deliveries = Deliveries()
        self._committed: dict[int, int] = {}
        self._committed_at = 0.0
        self._consumer: AIOKafkaConsumer | None = None

    async def start(self) -> None:
        """Join the group, which gets all messages of the topic from its first on; raise StoreError."""
        from aiokafka import AIOKafkaConsumer

        self._consumer = AIOKafkaConsumer(
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=_LONGEST_PROCESSING_MS,
            **self._connector.options,
        )
        self._consumer.subscribe([self._topic], listener=_listener(self._forget))
        await self._connector.run(self._consumer.start(), longest_s=_JOIN_S)

    async def take(self, *, count: int, wait_s: float) -> list[BrokerMessage]:
        """Return the next messages; wait for the first, but not for ever."""
        await self._commit()
        work = self._started.getmany(timeout_ms=round(1000 * wait_s), max_records=count)
        found = await self._connector.run(work, longest_s=wait_s + self._connector.timeout_s)
        records = [record for several in found.values() for record in several]
        messages = [_message(record) for record in records]
        for message in messages:
            self._deliveries.add(message, time.monotonic())
        return messages

    def take_overdue(self, *, count: int, idle_s: float) -> list[BrokerMessage]:
        """Return messages that were given out long ago and are not acknowledged."""
        return self._deliveries.take_overdue(time.monotonic(), idle_s=idle_s, count=count)

    async def acknowledge(self, identities: Sequence[str]) -> None:
        """Say that messages need not be given out again."""
        self._deliveries.acknowledge(identities)
        if not self._deliveries.has_unacknowledged or time.monotonic() - self._committed_at > _COMMIT_S:
            await self._commit()

    async def has(self, identity: str) -> bool:
        """Say whether the topic still has a message."""
        position = position_of(identity)
        partition = self._partition(position.partition)
        first = await self._connector.run(self._started.beginning_offsets([partition]))
        return position.offset >= first[partition]

    async def lag(self) -> int:
        """Return how many messages the group has not acknowledged."""
        return await self._connector.run(self._lag())

    async def _lag(self) -> int:
        consumer, lag = self._started, 0
        partitions = [self._partition(number) for number in consumer.partitions_for_topic(self._topic) or ()]
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            done = await consumer.committed(partition)
            if done is None:
                done = (await consumer.beginning_offsets([partition]))[partition]
            lag += max(0, end - done)
        return lag

    async def _commit(self) -> None:
        from aiokafka.errors import CommitFailedError, IllegalStateError

        done = self._deliveries.committable_offsets()
        changed = {number: offset for number, offset in done.items() if self._committed.get(number) != offset}
        if not changed:
            return
        offsets = {self._partition(number): offset for number, offset in changed.items()}
        # another member is given the messages of a partition that this one has no longer
        with contextlib.suppress(CommitFailedError, IllegalStateError):
            await self._connector.run(self._committing(offsets))
        self._committed |= changed
        self._committed_at = time.monotonic()

    async def _committing(self, offsets: dict[Any, int]) -> None:
        await self._started.commit(offsets)

    def _forget(self, partitions: Collection[int]) -> None:
        self._deliveries.drop(partitions)
        self._committed.clear()

    @property
    def _started(self) -> AIOKafkaConsumer:
        assert self._consumer is not None
        return self._consumer

    def _partition(self, number: int) -> Any:
        from aiokafka import TopicPartition

        return TopicPartition(self._topic, number)

    async def stop(self) -> None:
        """Leave the group, if the broker can be told so in time."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_STOP_S):
                    await consumer.stop()
        self._connector.close()


def _message(record: Any) -> BrokerMessage:
    fields = {BODY: (record.value or b"").decode(errors="replace")}
    fields |= {name: value.decode(errors="replace") for name, value in record.headers}
    return BrokerMessage(identity_of(record.topic, MessagePosition(record.partition, record.offset)), fields)


def _listener(forget: Any) -> Any:
    """Return what the library tells which partitions the member no longer has."""
    from aiokafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            forget([partition.partition for partition in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            """Do nothing: messages are asked for as ever."""

    return Listener()
