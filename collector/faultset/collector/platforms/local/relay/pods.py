"""What the relay knows about one pod: its counters and the state of its network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from faultset.collector.platforms.api.impairments import Bandwidth, Delay, Impairment, Loss, Partition
from faultset.collector.platforms.local.relay.messages import PodCounters
from faultset.collector.platforms.local.relay.requests import RequestRule, request_rule
from faultset.collector.platforms.local.relay.schedule import CLEAR, Link

COUNTERS = tuple(field.name for field in fields(PodCounters))


class Pod:
    """One end of connections, known by its address; counters grow from its start."""

    __slots__ = (*COUNTERS, "busy_until_s", "disturbed", "link", "name", "rules")

    def __init__(self, name: str):
        self.name = name
        self.link = CLEAR
        self.rules: tuple[RequestRule, ...] = ()
        self.disturbed = 0
        self.busy_until_s = 0.0
        self.receive_bytes = self.transmit_bytes = 0
        self.receive_packets = self.transmit_packets = 0
        self.receive_packets_dropped = self.transmit_packets_dropped = 0

    def queue_s(self, now_s: float, size: int) -> float:
        """Take the time to send `size` bytes at the pod's limit; return how long they wait, with their own time."""
        if not self.link.bytes_per_s:
            return 0.0
        self.busy_until_s = max(self.busy_until_s, now_s) + size / self.link.bytes_per_s
        self.disturbed += 1
        return self.busy_until_s - now_s

    def counters(self) -> PodCounters:
        """Return all counters."""
        return PodCounters(**{counter: getattr(self, counter) for counter in COUNTERS})


def rules_of(
    impairments: Iterable[Impairment], before: tuple[RequestRule, ...], now_s: float
) -> tuple[RequestRule, ...]:
    """Return what happens to requests to a pod; a rule that was there before goes on."""
    known = {rule.impairment: rule for rule in before}
    rules = (known.get(one) or request_rule(one, now_s) for one in impairments)  # type: ignore[arg-type]
    return tuple(rule for rule in rules if rule)


def drop(sender: Pod, receiver: Pod, packets: int) -> None:
    """Count lost packets where they were lost: at the sender, or before a receiver that is cut off."""
    if sender.link.cut or sender.link.loss:
        sender.transmit_packets_dropped += packets
    else:
        receiver.receive_packets_dropped += packets


def link_of(impairments: Iterable[tuple[Impairment, float]]) -> Link:
    """Combine the impairments of one pod, each with its age in seconds: delays add up, losses are independent."""
    passing, latency_s, jitter_s, cut, bytes_per_s = 1.0, 0.0, 0.0, False, 0.0
    for impairment, age_s in impairments:
        intensity = impairment.intensity_at(age_s)
        if not intensity:
            continue
        match impairment:
            case Loss():
                passing *= 1.0 - intensity * impairment.probability
            case Delay():
                latency_s += intensity * impairment.latency_s
                jitter_s += intensity * impairment.jitter_s
            case Partition():
                cut = True
            case Bandwidth():
                bytes_per_s = min(bytes_per_s or impairment.bytes_per_s, impairment.bytes_per_s)
            case _:
                continue
    link = Link(loss=1.0 - passing, latency_s=latency_s, jitter_s=jitter_s, cut=cut, bytes_per_s=bytes_per_s)
    return CLEAR if link == CLEAR else link
