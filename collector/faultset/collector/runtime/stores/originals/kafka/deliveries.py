"""Messages that one member of a group was given: which are open, and up to where each partition is done with."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from faultset.collector.runtime.stores.broker import BrokerMessage


class MessagePosition(NamedTuple):
    """Where a message is within its topic."""

    partition: int
    offset: int


def identity_of(topic: str, position: MessagePosition) -> str:
    """Return the identity of a message, as Kafka's own tools name a position.

    >>> identity_of("orders", MessagePosition(0, 17))
    'orders-0@17'
    """
    return f"{topic}-{position.partition}@{position.offset}"


def position_of(identity: str) -> MessagePosition:
    """Return where a message with an identity is.

    >>> position_of("new-orders-0@17")
    MessagePosition(partition=0, offset=17)
    """
    partition, _, offset = identity.rpartition("-")[2].partition("@")
    return MessagePosition(int(partition), int(offset))


class Deliveries:
    """The messages that a member was given.

    Kafka keeps no more of a group than one number for each partition: all messages before it are done with. So a
    message that is not acknowledged holds that number back, and whoever was given it is given it again from here.
    """

    def __init__(self) -> None:
        self._open: dict[MessagePosition, tuple[BrokerMessage, float]] = {}
        self._next: dict[int, int] = {}

    @property
    def has_unacknowledged(self) -> bool:
        """Whether a message is not acknowledged."""
        return bool(self._open)

    def add(self, message: BrokerMessage, now: float) -> None:
        """Note that a message is given out; messages of a partition come in their order."""
        position = position_of(message.identity)
        self._open[position] = (message, now)
        self._next[position.partition] = position.offset + 1

    def acknowledge(self, identities: Collection[str]) -> None:
        """Note that messages are done with."""
        for identity in identities:
            self._open.pop(position_of(identity), None)

    def take_overdue(self, now: float, *, idle_s: float, count: int) -> list[BrokerMessage]:
        """Return open messages that were given out long ago, and note that they are given out again."""
        overdue = [position for position, (_, since) in self._open.items() if now - since >= idle_s][:count]
        for position in overdue:
            self._open[position] = (self._open[position][0], now)
        return [self._open[position][0] for position in overdue]

    def committable_offsets(self) -> dict[int, int]:
        """Return for each partition the first offset that is not done with."""
        found = dict(self._next)
        for position in self._open:
            found[position.partition] = min(found[position.partition], position.offset)
        return found

    def drop(self, partitions: Collection[int]) -> None:
        """Drop what was given of partitions that another member is given from now on."""
        self._open = {position: given for position, given in self._open.items() if position.partition not in partitions}
        self._next = {partition: offset for partition, offset in self._next.items() if partition not in partitions}
