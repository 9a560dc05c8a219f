"""What the relay knows about one pod: its counters and the state of its network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from faultset.collector.platforms.api.impairments import Delay, Impairment, Loss, Partition
from faultset.collector.platforms.local.relay.messages import PodCounters
from faultset.collector.platforms.local.relay.schedule import CLEAR, Link

COUNTERS = tuple(field.name for field in fields(PodCounters))


class Pod:
    """One end of connections, known by its address; counters grow from its start."""

    __slots__ = (*COUNTERS, "name", "link")

    def __init__(self, name: str):
        self.name = name
        self.link = CLEAR
        self.receive_bytes = self.transmit_bytes = 0
        self.receive_packets = self.transmit_packets = 0
        self.receive_packets_dropped = self.transmit_packets_dropped = 0

    def counters(self) -> PodCounters:
        """Return all counters."""
        return PodCounters(**{counter: getattr(self, counter) for counter in COUNTERS})


def drop(sender: Pod, receiver: Pod, packets: int) -> None:
    """Count lost packets where they were lost: at the sender, or before a receiver that is cut off."""
    if sender.link.cut or sender.link.loss:
        sender.transmit_packets_dropped += packets
    else:
        receiver.receive_packets_dropped += packets


def link_of(impairments: Iterable[Impairment]) -> Link:
    """Combine the impairments of one pod: delays add up, losses are independent."""
    passing, latency_s, jitter_s, cut = 1.0, 0.0, 0.0, False
    for impairment in impairments:
        match impairment:
            case Loss():
                passing *= 1.0 - impairment.probability
            case Delay():
                latency_s += impairment.latency_s
                jitter_s += impairment.jitter_s
            case Partition():
                cut = True
    link = Link(loss=1.0 - passing, latency_s=latency_s, jitter_s=jitter_s, cut=cut)
    return CLEAR if link == CLEAR else link
