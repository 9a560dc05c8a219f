"""What the relay knows about one pod: its counters and the state of its network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from random import Random

from faultset.collector.platforms.api.impairments import (
    Abort,
    Bandwidth,
    Delay,
    Hold,
    Impairment,
    Loss,
    Partition,
    Reset,
)
from faultset.collector.platforms.local.relay.messages import PodCounters
from faultset.collector.platforms.local.relay.schedule import CLEAR, Link

_REQUEST = re.compile(rb"(?:GET|POST|PUT|DELETE|PATCH|HEAD) (\S*) HTTP/1\.[01]\r\n")
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n"
    b"Connection: close\r\n\r\nservice unavailable"
)
"""The answer to a request that is refused."""


@dataclass(frozen=True, kw_only=True)
class RequestRule:
    """What happens to requests to one pod.

    Attributes
    ----------
    impairment
        Share of the requests over time, from which caller, and to which path.
    begun_s
        When it began, by the clock that `concerns` is given the time of.
    """

    impairment: Abort | Hold | Reset
    begun_s: float = 0.0

    def concerns(self, caller: str, data: bytes, rng: Random, now_s: float) -> bool:
        """Say whether what arrived begins a request that the rule is drawn for.

        Parameters
        ----------
        caller
            Name of the pod that sent it.
        """
        rule = self.impairment
        if rule.caller and rule.caller not in owners(caller):
            return False
        begun = _REQUEST.match(data)
        if begun is None or (rule.path and begun[1].partition(b"?")[0] != rule.path.encode()):
            return False
        return rng.random() < rule.share_at(now_s - self.begun_s)


def request_rule(impairment: Impairment, now_s: float) -> RequestRule | None:
    """Return the rule of an impairment of requests; None for one of packets."""
    return RequestRule(impairment=impairment, begun_s=now_s) if isinstance(impairment, Abort | Hold | Reset) else None


def owners(pod: str) -> tuple[str, str]:
    """Return the workloads that may own a pod, by its name: of a Deployment, or of a StatefulSet.

    >>> owners("user-timeline-5d4f7-abcde")
    ('user-timeline', 'user-timeline-5d4f7')
    """
    set_name = pod.rpartition("-")[0]
    return set_name.rpartition("-")[0], set_name


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
