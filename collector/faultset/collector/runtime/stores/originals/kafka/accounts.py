"""What an administrator does to the accounts of Kafka: access control lists, and passwords."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from faultset.collector.runtime.stores.driver import AdminAction, Credentials
from faultset.collector.runtime.stores.originals.kafka.settings import (
    ADMINISTRATOR,
    ITERATIONS,
    MECHANISM,
    SaltedPassword,
)
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    from aiokafka import TopicPartition

T = TypeVar("T")
_TIMEOUT_S = 10.0
_ANY, _TOPIC, _GROUP, _CLUSTER = 1, 2, 3, 4
_LITERAL = 3
_ALL, _READ, _WRITE, _CREATE, _DESCRIBE = 2, 3, 4, 5, 8
_DENY, _ALLOW = 2, 3
_RESOURCE_NOT_FOUND = 91


class AccessRule(NamedTuple):
    """One entry of an access control list: a right on all resources of a kind; numbers are the protocol's."""

    resource: int
    operation: int
    permission: int

    @property
    def resource_name(self) -> str:
        """Return the name of the resources."""
        return "kafka-cluster" if self.resource == _CLUSTER else "*"


RULES: dict[AdminAction, tuple[AccessRule, ...]] = {
    "grant-rights": (),
    "revoke-rights": tuple(AccessRule(kind, _ALL, _DENY) for kind in (_TOPIC, _GROUP, _CLUSTER)),
    "revoke-writing": (AccessRule(_TOPIC, _READ, _ALLOW), AccessRule(_TOPIC, _DESCRIBE, _ALLOW)),
    "revoke-consuming": tuple(AccessRule(_TOPIC, right, _ALLOW) for right in (_WRITE, _CREATE, _DESCRIBE)),
}
"""Which entries the application's account has after an action.

Without any it may do everything. One that gives a right on topics leaves the account none on topics but those given.
"""


def administer(address: str, port: int, action: AdminAction, *, account: str, credentials: Credentials) -> None:
    """Do something as administrator; raise PlatformError."""

    async def run(client: Any) -> None:
        if action == "empty-store":
            await _delete_messages(client, address, port, credentials)
            return
        is_there = await _is_there(client, account)
        if action in RULES or action in ("set-password", "require-password"):
            if not is_there:
                raise PlatformError(f"the store at {address}:{port} has no account {account}; create it first")
        elif is_there == (action == "create-account"):
            return
        await _change(client, action, account, credentials)

    as_administrator(address, port, credentials, run, what=action)


async def _change(client: Any, action: AdminAction, account: str, credentials: Credentials) -> None:
    from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

    from faultset.collector.runtime.stores.originals.kafka.messages import RemoveAccount, SetPassword

    if action in RULES:
        principal = f"User:{account}"
        await _ask(client, DeleteAclsRequest(_ANY, None, _ANY, principal, None, _ANY, _ANY))  # type: ignore[arg-type]
        for rule in RULES[action]:
            entry = (rule.resource, rule.resource_name, _LITERAL, principal, "*", rule.operation, rule.permission)
            await _ask(client, CreateAclsRequest(*entry))
    elif action == "remove-account":
        await _ask(client, RemoveAccount(account))
    else:
        word = secrets.token_hex() if action == "require-password" else credentials.application
        salted = SaltedPassword(word)
        await _ask(client, SetPassword(account, iterations=ITERATIONS, salt=salted.salt, hashed=salted.hash))


async def _is_there(client: Any, account: str) -> bool:
    from faultset.collector.runtime.stores.originals.kafka.messages import DescribeAccounts

    answer = (await client.send(client.get_random_node(), DescribeAccounts(account))).to_object()
    return any(one["error_code"] != _RESOURCE_NOT_FOUND for one in answer["results"])


async def partitions_of(client: Any) -> list[TopicPartition]:
    """Return the partitions of all topics but Kafka's own."""
    from aiokafka import TopicPartition

    cluster = await client.fetch_all_metadata()
    topics = sorted(cluster.topics(exclude_internal_topics=True))
    return [TopicPartition(name, number) for name in topics for number in cluster.partitions_for_topic(name) or ()]


async def _delete_messages(client: Any, address: str, port: int, credentials: Credentials) -> None:
    """Delete all messages of all topics but Kafka's own."""
    from aiokafka import AIOKafkaConsumer

    partitions = await partitions_of(client)
    consumer = AIOKafkaConsumer(**options_of(address, port, ADMINISTRATOR, credentials.administrator))
    await consumer.start()
    try:
        ends = await consumer.end_offsets(partitions)
    finally:
        await consumer.stop()
    await delete_before(client, ends)


async def delete_before(client: Any, offsets: dict[Any, int]) -> None:
    """Delete the messages of partitions before an offset, the only way in which Kafka deletes any."""
    from aiokafka.protocol.admin import DeleteRecordsRequest

    topics = {partition.topic for partition in offsets}
    wanted = [
        (topic, [(partition.partition, offset) for partition, offset in offsets.items() if partition.topic == topic])
        for topic in sorted(topics)
    ]
    if wanted:
        await _ask(client, DeleteRecordsRequest(wanted, round(1000 * _TIMEOUT_S)))


async def _ask(client: Any, request: Any) -> None:
    """Send a request; raise PlatformError when the broker refuses it, or a part of it."""
    answer = await client.send(client.get_random_node(), request)
    for refusal in _refusals(answer.to_object()):
        raise PlatformError(f"the broker refuses: {refusal}")


def _refusals(answer: Any) -> Iterator[str]:
    """Return what an answer says of errors, wherever in it."""
    from aiokafka.errors import for_code

    if isinstance(answer, list):
        for part in answer:
            yield from _refusals(part)
    elif isinstance(answer, dict):
        if code := answer.get("error_code"):
            yield answer.get("error_message") or for_code(code).message
        for part in answer.values():
            yield from _refusals(part)


def as_administrator(
    address: str, port: int, credentials: Credentials, use: Callable[[Any], Awaitable[T]], *, what: str
) -> T:
    """Do something with a client of the administrator; raise PlatformError when the broker refuses."""
    options = options_of(address, port, ADMINISTRATOR, credentials.administrator)
    return run_with_broker(address, port, lambda: with_client(options, use), what=what)


def run_with_broker(address: str, port: int, work: Callable[[], Coroutine[Any, Any, T]], *, what: str) -> T:
    """Run what asks a broker; raise PlatformError when the broker refuses, or cannot be reached."""
    from aiokafka.errors import KafkaError

    try:
        return asyncio.run(work())
    except (KafkaError, OSError) as error:
        raise PlatformError(f"the store at {address}:{port} refused to {what}: {error}") from None


async def with_client(options: Mapping[str, Any], use: Callable[[Any], Awaitable[T]]) -> T:
    """Do something with a connected client of the library; `options` are those of `options_of`."""
    from aiokafka.client import AIOKafkaClient

    client = AIOKafkaClient(**options)
    try:
        await client.bootstrap()
        return await use(client)
    finally:
        await client.close()


def options_of(address: str, port: int, account: str, password: str) -> dict[str, Any]:
    """Return the options of a client of the library that logs in with an account; what fails is raised, not logged."""
    logging.getLogger("aiokafka").addHandler(logging.NullHandler())
    logging.getLogger("aiokafka").propagate = False
    return {
        "bootstrap_servers": f"{address}:{port}",
        "request_timeout_ms": round(1000 * _TIMEOUT_S),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": account,
        "sasl_plain_password": password,
    }
