"""Messages that one member of a group was given: which are open, and up to where each partition is done with."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from faultset.collector.runtime.stores.broker import BrokerMessage


class MessagePlace(NamedTuple):
    """Where a message is within its topic."""

    partition: int
    offset: int


def identity_of(topic: str, place: MessagePlace) -> str:
    """Return the identity of a message, as Kafka's own tools name a place.

    >>> identity_of("orders", MessagePlace(0, 17))
    'orders-0@17'
    """
    return f"{topic}-{place.partition}@{place.offset}"


def place_of(identity: str) -> MessagePlace:
    """Return where a message with an identity is.

    >>> place_of("new-orders-0@17")
    MessagePlace(partition=0, offset=17)
    """
    partition, _, offset = identity.rpartition("-")[2].partition("@")
    return MessagePlace(int(partition), int(offset))


class Deliveries:
    """The messages that a member was given.

    Kafka keeps no more of a group than one number for each partition: all messages before it are done with. So a
    message that is not acknowledged holds that number back, and whoever was given it is given it again from here.
    """

    def __init__(self) -> None:
        self._open: dict[MessagePlace, tuple[BrokerMessage, float]] = {}
        self._next: dict[int, int] = {}

    @property
    def has_open(self) -> bool:
        """Whether a message is not acknowledged."""
        return bool(self._open)

    def give(self, message: BrokerMessage, now: float) -> None:
        """Note that a message is given out; messages of a partition come in their order."""
        place = place_of(message.identity)
        self._open[place] = (message, now)
        self._next[place.partition] = place.offset + 1

    def acknowledge(self, identities: Collection[str]) -> None:
        """Note that messages are done with."""
        for identity in identities:
            self._open.pop(place_of(identity), None)

    def take_overdue(self, now: float, *, idle_s: float, count: int) -> list[BrokerMessage]:
        """Return open messages that were given out long ago, and note that they are given out again."""
        overdue = [place for place, (_, since) in self._open.items() if now - since >= idle_s][:count]
        for place in overdue:
            self._open[place] = (self._open[place][0], now)
        return [self._open[place][0] for place in overdue]

    def done(self) -> dict[int, int]:
        """Return for each partition the first offset that is not done with."""
        found = dict(self._next)
        for place in self._open:
            found[place.partition] = min(found[place.partition], place.offset)
        return found

    def forget(self, partitions: Collection[int]) -> None:
        """Forget what was given of partitions that another member is given from now on."""
        self._open = {place: given for place, given in self._open.items() if place.partition not in partitions}
        self._next = {partition: offset for partition, offset in self._next.items() if partition not in partitions}
