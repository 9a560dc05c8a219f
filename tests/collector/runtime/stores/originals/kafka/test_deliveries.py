"""What one member of a group was given, and up to where it is done."""

from __future__ import annotations

from faultset.collector.runtime.stores.broker import BrokerMessage
from faultset.collector.runtime.stores.originals.kafka.deliveries import (
    Deliveries,
    MessagePosition,
    identity_of,
    position_of,
)


def given(*places: tuple[int, int], at: float = 0.0) -> Deliveries:
    deliveries = Deliveries()
    for partition, offset in places:
        identity = identity_of("orders", MessagePosition(partition, offset))
        deliveries.add(BrokerMessage(identity, {"body": str(offset)}), at)
    return deliveries


def test_an_identity_names_the_place_of_a_message_whatever_the_topic_is_called() -> None:
    for topic in ("orders", "new-orders.2", "a-1@2"):
        assert position_of(identity_of(topic, MessagePosition(3, 41))) == (3, 41)


def test_an_open_message_holds_back_what_is_done_with() -> None:
    deliveries = given((0, 5), (0, 6), (0, 7), (1, 2))
    assert deliveries.committable_offsets() == {0: 5, 1: 2}
    deliveries.acknowledge(["orders-0@5", "orders-0@7", "orders-1@2"])
    assert deliveries.committable_offsets() == {0: 6, 1: 3}
    assert deliveries.has_unacknowledged
    deliveries.acknowledge(["orders-0@6"])
    assert deliveries.committable_offsets() == {0: 8, 1: 3}
    assert not deliveries.has_unacknowledged


def test_messages_that_were_given_long_ago_are_given_again_once_in_that_time() -> None:
    deliveries = given((0, 1), (0, 2), at=10.0)
    assert deliveries.take_overdue(12.0, idle_s=5.0, count=9) == []
    (first,) = deliveries.take_overdue(15.0, idle_s=5.0, count=1)
    assert first.identity == "orders-0@1"
    assert [one.identity for one in deliveries.take_overdue(16.0, idle_s=5.0, count=9)] == ["orders-0@2"]
    assert deliveries.take_overdue(17.0, idle_s=5.0, count=9) == []


def test_what_another_member_is_given_from_now_on_is_forgotten() -> None:
    deliveries = given((0, 1), (1, 1))
    deliveries.drop([0])
    assert deliveries.committable_offsets() == {1: 1}
    deliveries.acknowledge(["orders-0@1"])
    assert deliveries.take_overdue(99.0, idle_s=1.0, count=9)[0].identity == "orders-1@1"
