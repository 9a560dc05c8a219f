"""The relay's model of a pod's network: counters, impairments and retransmissions."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from random import Random

from faultset.collector.platforms.impairments import Abort, Bandwidth, Delay, Hold, Impairment, Loss, Partition, Reset
from faultset.collector.platforms.local.messages import PodCounters

PACKET_BYTES = 1448
"""Payload of an Ethernet frame: 1500 bytes minus IP and TCP headers with the timestamp option."""

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 120.0
"""First and maximum retransmission timeout of data; it doubles after each retry (Linux)."""

SET_UP_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Delays between attempts to open a connection; after the last one the client gives up (Linux)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """Network conditions of a pod's outgoing traffic.

    Attributes
    ----------
    loss
        Probability that a packet is lost, independently of other packets.
    latency_s, jitter_s
        Delay of a packet, uniform in `latency_s` plus or minus `jitter_s`.
    cut
        Whether all packets are lost.
    bytes_per_s
        Bandwidth limit; 0 for no limit.
    """

    loss: float = 0.0
    latency_s: float = 0.0
    jitter_s: float = 0.0
    cut: bool = False
    bytes_per_s: float = 0.0

    def towards(self, receiver: Link) -> Link:
        """Return the link to a receiver, which is cut if the receiver's link is cut."""
        return replace(self, cut=True) if receiver.cut and not self.cut else self

    def draw_losses(self, rng: Random, packets: int) -> int:
        """Draw how many of `packets` are lost."""
        if self.cut:
            return packets
        if self.loss <= 0.0:
            return 0
        return sum(rng.random() < self.loss for _ in range(packets))

    def travel_s(self, rng: Random) -> float:
        """Draw the travel time of a chunk."""
        jitter_s = rng.uniform(-self.jitter_s, self.jitter_s) if self.jitter_s else 0.0
        return max(0.0, self.latency_s + jitter_s)


CLEAR = Link()


def count_packets(size: int) -> int:
    """Return how many packets carry `size` bytes; closing a connection takes one packet, too."""
    return -(-size // PACKET_BYTES) or 1


@dataclass(kw_only=True, slots=True)
class _Chunk:
    missing: int
    arrival_s: float = 0.0
    queued_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowStep:
    """The packets and chunks of a flow that were handled in one step."""

    passed: int = 0
    lost: int = 0
    delivered: int = 0


class Flow:
    """One direction of a connection: chunks that were sent and have not arrived yet, in order.

    Each packet of a chunk may be lost. After a timeout all missing packets are retransmitted; the timeout doubles until
    the first chunk is complete. A chunk arrives once it is complete, its travel time has passed and all earlier chunks
    have arrived.
    """

    __slots__ = ("_chunks", "_last_arrival_s", "_retry_at_s", "_retry_s", "_rng")

    def __init__(self, rng: Random):
        self._rng = rng
        self._chunks: deque[_Chunk] = deque()
        self._retry_s = FIRST_RETRY_S
        self._retry_at_s: float | None = None
        self._last_arrival_s = 0.0

    def __len__(self) -> int:
        return len(self._chunks)

    def send(self, now_s: float, count: int, link: Link, queued_s: float = 0.0) -> FlowStep:
        """Send a chunk of `count` packets, which is queued for `queued_s` first."""
        chunk = _Chunk(missing=count, queued_s=queued_s)
        self._chunks.append(chunk)
        lost = self._transmit(chunk, now_s, link)
        if lost and self._retry_at_s is None:
            self._retry_s = FIRST_RETRY_S
            self._retry_at_s = now_s + self._retry_s
        return FlowStep(passed=count - lost, lost=lost)

    def due_s(self) -> float | None:
        """Return when `step` is due, or None."""
        if not self._chunks:
            return None
        head = self._chunks[0]
        if head.missing:
            return self._retry_at_s
        return head.arrival_s if self._retry_at_s is None else min(head.arrival_s, self._retry_at_s)

    def step(self, now_s: float, link: Link) -> FlowStep:
        """Retransmit missing packets if due, and count the chunks that have arrived."""
        passed = lost = 0
        if self._retry_at_s is not None and self._retry_at_s <= now_s:
            head = self._chunks[0]
            stuck = head.missing > 0
            for chunk in self._chunks:
                if chunk.missing:
                    sent = chunk.missing
                    failed = self._transmit(chunk, now_s, link)
                    passed, lost = passed + sent - failed, lost + failed
            has_missing = any(chunk.missing for chunk in self._chunks)
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S) if stuck and head.missing else FIRST_RETRY_S
            self._retry_at_s = now_s + self._retry_s if has_missing else None
        delivered = 0
        while self._chunks and not self._chunks[0].missing and self._chunks[0].arrival_s <= now_s:
            self._chunks.popleft()
            delivered += 1
        return FlowStep(passed=passed, lost=lost, delivered=delivered)

    def _transmit(self, chunk: _Chunk, now_s: float, link: Link) -> int:
        chunk.missing = link.draw_losses(self._rng, chunk.missing)
        if not chunk.missing:
            chunk.arrival_s = max(now_s + chunk.queued_s + link.travel_s(self._rng), self._last_arrival_s)
            self._last_arrival_s = chunk.arrival_s
        return chunk.missing


_REQUEST_LINE = re.compile(rb"(?:GET|POST|PUT|DELETE|PATCH|HEAD) (\S*) HTTP/1\.[01]\r\n")
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 19\r\n"
    b"Connection: close\r\n\r\nservice unavailable"
)
"""The response to an aborted request."""


@dataclass(frozen=True, kw_only=True)
class RequestRule:
    """Impairs requests to a pod.

    Attributes
    ----------
    impairment
        Selects requests by caller, path and a share that may vary over time.
    start_s
        Start of the impairment, on the clock of `now_s` in `applies_to`.
    """

    impairment: Abort | Hold | Reset
    start_s: float = 0.0

    def applies_to(self, caller: str, data: bytes, rng: Random, now_s: float) -> bool:
        """Return whether data starts a request that the rule impairs; random if the share is below 1.

        Parameters
        ----------
        caller
            Name of the sending pod.
        """
        rule = self.impairment
        if rule.caller and rule.caller not in owners(caller):
            return False
        match = _REQUEST_LINE.match(data)
        if match is None or (rule.path and match[1].partition(b"?")[0] != rule.path.encode()):
            return False
        return rng.random() < rule.share_at(now_s - self.start_s)


def owners(pod: str) -> tuple[str, str]:
    """Return the name of a pod's owner under two assumptions: it is a Deployment, or it is a StatefulSet.

    >>> owners("user-timeline-5d4f7-abcde")
    ('user-timeline', 'user-timeline-5d4f7')
    """
    set_name = pod.rpartition("-")[0]
    return set_name.rpartition("-")[0], set_name


COUNTERS = tuple(field.name for field in fields(PodCounters))


class Pod:
    """The network state and counters of a pod."""

    __slots__ = (*COUNTERS, "busy_until_s", "impaired_count", "link", "name", "rules")

    def __init__(self, name: str):
        self.name = name
        self.link = CLEAR
        self.rules: tuple[RequestRule, ...] = ()
        self.impaired_count = 0
        self.busy_until_s = 0.0
        self.receive_bytes = self.transmit_bytes = 0
        self.receive_packets = self.transmit_packets = 0
        self.receive_packets_dropped = self.transmit_packets_dropped = 0

    def queue_s(self, now_s: float, size: int) -> float:
        """Queue `size` bytes at the pod's bandwidth limit; return the time until they are sent."""
        if not self.link.bytes_per_s:
            return 0.0
        self.busy_until_s = max(self.busy_until_s, now_s) + size / self.link.bytes_per_s
        self.impaired_count += 1
        return self.busy_until_s - now_s

    def counters(self) -> PodCounters:
        return PodCounters(**{counter: getattr(self, counter) for counter in COUNTERS})


def build_rules(
    impairments: Iterable[Impairment], current_rules: tuple[RequestRule, ...], now_s: float
) -> tuple[RequestRule, ...]:
    """Return the rules of request impairments; unchanged rules keep their start time."""
    existing = {rule.impairment: rule for rule in current_rules}
    return tuple(
        existing.get(impairment) or RequestRule(impairment=impairment, start_s=now_s)
        for impairment in impairments
        if isinstance(impairment, Abort | Hold | Reset)
    )


def count_drops(sender: Pod, receiver: Pod, packets: int) -> None:
    """Count lost packets at the sender, or at the receiver if only its link is cut."""
    if sender.link.cut or sender.link.loss:
        sender.transmit_packets_dropped += packets
    else:
        receiver.receive_packets_dropped += packets


def combine_impairments(impairments: Iterable[tuple[Impairment, float]]) -> Link:
    """Combine a pod's impairments, given with their ages in seconds; delays add up, losses are independent."""
    pass_share, latency_s, jitter_s, cut, bytes_per_s = 1.0, 0.0, 0.0, False, 0.0
    for impairment, age_s in impairments:
        intensity = impairment.intensity_at(age_s)
        if not intensity:
            continue
        match impairment:
            case Loss():
                pass_share *= 1.0 - intensity * impairment.probability
            case Delay():
                latency_s += intensity * impairment.latency_s
                jitter_s += intensity * impairment.jitter_s
            case Partition():
                cut = True
            case Bandwidth():
                bytes_per_s = min(bytes_per_s or impairment.bytes_per_s, impairment.bytes_per_s)
            case _:
                continue
    link = Link(loss=1.0 - pass_share, latency_s=latency_s, jitter_s=jitter_s, cut=cut, bytes_per_s=bytes_per_s)
    return CLEAR if link == CLEAR else link
