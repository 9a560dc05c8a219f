"""The administrator of a Kafka broker, by its own means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.messages import UNREADABLE, is_readable
from faultset.collector.runtime.administration.store_administration import StoreAdministration
from faultset.collector.runtime.stores.originals.kafka.accounts import (
    as_administrator,
    delete_before,
    options_of,
    partitions_of,
    run_with_broker,
    with_client,
)
from faultset.collector.runtime.stores.originals.kafka.connector import error_text
from faultset.collector.runtime.stores.originals.kafka.settings import ADMINISTRATOR

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

T = TypeVar("T")
_WAIT_MS = 1000
_NO_PARTITION = 999_999


class KafkaAdministration(StoreAdministration):
    """See `StoreAdministration`."""

    system = "kafka"

    def __init__(self, access: StoreAccess):
        self._access = access

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message whose body breaks off."""

        async def publish() -> None:
            from aiokafka import AIOKafkaProducer

            producer = AIOKafkaProducer(**self._options(ADMINISTRATOR))
            await producer.start()
            try:
                await producer.send_and_wait(_topic_of(stream), UNREADABLE.encode())
            finally:
                await producer.stop()

        self._run(publish, what="publish-unreadable")

    def remove_unreadable(self, stream: str) -> None:
        """Delete the messages of a topic up to the last one that nobody can read; Kafka deletes no single ones."""

        async def find() -> dict[TopicPartition, tuple[int, int]]:
            places = await with_client(self._options(ADMINISTRATOR), partitions_of)
            return await self._unreadable(places, _topic_of(stream))

        found = self._run(find, what="remove-unreadable")
        access = self._access
        as_administrator(
            access.address,
            access.port,
            access.credentials,
            lambda client: delete_before(client, {place: last + 1 for place, (last, _) in found.items()}),
            what="remove-unreadable",
        )

    def state(self, stream: str | None) -> dict[str, Any]:
        """Try, as the application, to take a message of each topic, and to publish to a partition that is not there."""

        account = self._access.account

        async def find() -> dict[str, Any]:
            places = await with_client(self._options(ADMINISTRATOR), partitions_of)
            found: dict[str, Any] = {"write_refused": "", "consume_refused": "", "file_limit": None}
            if places:
                write, fetch = partial(_refused_write, places=places), partial(_refused_fetch, places=places)
                found["write_refused"] = await with_client(self._options(account), write)
                found["consume_refused"] = await self._with_consumer(account, fetch)
            if stream is not None:
                unreadable = await self._unreadable(places, _topic_of(stream))
                found["unreadable"] = sum(count for _, count in unreadable.values())
            return found

        return self._run(find, what="state")

    async def _unreadable(self, places: Sequence[TopicPartition], topic: str) -> dict[TopicPartition, tuple[int, int]]:
        wanted = [place for place in places if place.topic == topic]
        return await self._with_consumer(ADMINISTRATOR, lambda one: _unreadable(one, wanted)) if wanted else {}

    async def _with_consumer(self, account: str, use: Callable[[AIOKafkaConsumer], Awaitable[T]]) -> T:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(auto_offset_reset="earliest", **self._options(account))
        try:
            await consumer.start()
            return await use(consumer)
        finally:
            await consumer.stop()

    def _options(self, account: str) -> dict[str, Any]:
        access = self._access
        credentials = access.credentials
        password = credentials.administrator if account == ADMINISTRATOR else credentials.application
        return options_of(access.address, access.port, account, password)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], *, what: str) -> T:
        return run_with_broker(self._access.address, self._access.port, work, what=what)


def _topic_of(stream: str) -> str:
    """Return the topic of a stream, which other brokers name after a database.

    >>> _topic_of("kafka.orders")
    'orders'
    """
    return stream.partition(".")[2]


async def _refused_fetch(consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]) -> str:
    """Return why a consumer is given no messages; empty when it is, or when there are only none."""
    from aiokafka.errors import TopicAuthorizationFailedError

    consumer.assign(places)
    try:
        await consumer.getmany(timeout_ms=_WAIT_MS, max_records=1)
    except TopicAuthorizationFailedError as error:
        return error_text(error)
    return ""


async def _refused_write(client: Any, places: Sequence[TopicPartition]) -> str:
    """Return why a client may publish nothing; empty when all that it is told is that the partition is not there."""
    from aiokafka.errors import TopicAuthorizationFailedError
    from aiokafka.protocol.produce import ProduceRequest
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1024)
    batch.append(0, 0, None, b"", [])
    content = bytes(batch.build())
    topics = sorted({place.topic for place in places})
    request = ProduceRequest(
        transactional_id=None,
        required_acks=1,
        timeout=_WAIT_MS,
        topics=[(topic, [(_NO_PARTITION, content)]) for topic in topics],
    )
    answer = await client.send(client.get_random_node(), request)
    refused = [topic for topic, parts in answer.topics if parts[0][1] == TopicAuthorizationFailedError.errno]
    return error_text(TopicAuthorizationFailedError(", ".join(refused))) if refused else ""


async def _unreadable(
    consumer: AIOKafkaConsumer, places: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offset of the last message of each partition that nobody can read, and how many there are."""
    ends = {place: end for place, end in (await consumer.end_offsets(places)).items() if end}
    first = await consumer.beginning_offsets([*ends])
    ends = {place: end for place, end in ends.items() if first[place] < end}
    found: dict[TopicPartition, tuple[int, int]] = {}
    consumer.assign([*ends])
    while ends:
        records = await consumer.getmany(timeout_ms=_WAIT_MS)
        for place, several in records.items():
            for record in several:
                if not is_readable((record.value or b"").decode(errors="replace")):
                    found[place] = (record.offset, found.get(place, (0, 0))[1] + 1)
        reached = {place: await consumer.position(place) for place in ends}
        ends = {place: end for place, end in ends.items() if reached[place] < end}
    return found
