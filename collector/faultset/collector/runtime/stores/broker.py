"""Brokers of messages over Redis Streams: topics, groups of consumers, acknowledgement and lag.

A topic is a stream. How many messages were published, and how many of them each group has acknowledged, is counted
beside it: their difference is the group's lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from faultset.collector.runtime.stores.driver import StoreClient, StoreError
from faultset.collector.runtime.stores.redis_client import RedisClient

KEPT_MESSAGES = 50_000
"""How many messages of a topic are kept at least; older ones go."""


class BrokerMessage(NamedTuple):
    """A message that was given out: its identity, and its fields as texts."""

    identity: str
    fields: dict[str, str]


@runtime_checkable
class BrokerClient(StoreClient, Protocol):
    """What services can do with a broker; every method raises StoreError."""

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        """Add messages to a topic."""
        ...

    async def join(self, topic: str, group: str) -> None:
        """Make a group that gets all messages of a topic from its first on; nothing happens when there is one."""
        ...

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        """Return messages that no member of the group was given before; wait for the first, but not for ever."""
        ...

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        """Return messages that a member was given long ago and has not acknowledged."""
        ...

    async def has(self, topic: str, identity: str) -> bool:
        """Say whether a topic still has a message."""
        ...

    async def acknowledge(self, topic: str, group: str, identities: Sequence[str]) -> None:
        """Say that messages need not be given out again."""
        ...

    async def lag(self, topic: str, group: str) -> int:
        """Return how many messages the group has not acknowledged."""
        ...


class RedisBroker(RedisClient):
    """See `BrokerClient`."""

    async def publish(self, topic: str, messages: Sequence[Mapping[str, str]]) -> None:
        """Add messages to a topic, in one request."""
        stream = self._key(topic)
        commands: list[tuple[Any, ...]] = [
            ("XADD", stream, "MAXLEN", "~", KEPT_MESSAGES, "*", *(part for pair in one.items() for part in pair))
            for one in messages
        ]
        if commands:
            await self.run_all([*commands, ("INCRBY", self._key(topic, "published"), len(messages))])

    async def join(self, topic: str, group: str) -> None:
        """Make a group that gets all messages of a topic from its first on; nothing happens when there is one."""
        try:
            await self.run("XGROUP", "CREATE", self._key(topic), group, "0", "MKSTREAM")
        except StoreError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def take(self, topic: str, group: str, member: str, *, count: int, wait_s: float) -> list[BrokerMessage]:
        """Return messages that no member of the group was given before; wait for the first, but not for ever."""
        options = ("COUNT", count, "BLOCK", max(1, round(wait_s * 1000)))
        found = await self.run("XREADGROUP", "GROUP", group, member, *options, "STREAMS", self._key(topic), ">")
        return [message for _, entries in found or () for message in _messages(entries)]

    async def take_over(self, topic: str, group: str, member: str, *, count: int, idle_s: float) -> list[BrokerMessage]:
        """Return messages that a member was given long ago and has not acknowledged."""
        idle_ms = round(idle_s * 1000)
        found = await self.run("XAUTOCLAIM", self._key(topic), group, member, idle_ms, "0", "COUNT", count)
        return _messages(found[1])

    async def has(self, topic: str, identity: str) -> bool:
        """Say whether a topic still has a message."""
        return bool(await self.run("XRANGE", self._key(topic), identity, identity))

    async def acknowledge(self, topic: str, group: str, identities: Sequence[str]) -> None:
        """Say that messages need not be given out again; each counts once."""
        acknowledged = await self.run("XACK", self._key(topic), group, *identities)
        if acknowledged:
            await self.run("INCRBY", self._key(topic, f"acknowledged.{group}"), acknowledged)

    async def lag(self, topic: str, group: str) -> int:
        """Return how many messages the group has not acknowledged."""
        keys = (self._key(topic, "published"), self._key(topic, f"acknowledged.{group}"))
        published, acknowledged = await self.run("MGET", *keys)
        return max(0, int(published or 0) - int(acknowledged or 0))


def _messages(entries: Any) -> list[BrokerMessage]:
    """Return the entries of a stream; one whose fields are gone was trimmed and is nobody's message."""
    return [
        BrokerMessage(identity, dict(zip(fields[::2], fields[1::2], strict=True)))
        for identity, fields in entries
        if fields
    ]
