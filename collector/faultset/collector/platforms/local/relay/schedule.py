"""When what one end sent reaches the other: TCP's retransmission steps, without clock and without I/O.

The relay moves bytes between two healthy kernel connections, so nothing is ever really lost. What a lossy
network would do to a connection is its delay: a lost packet arrives with its first retransmission that gets
through, and everything behind it waits. Chunks of a stream take the place of windows of packets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from random import Random

PACKET_BYTES = 1448
"""Payload of one packet: an Ethernet frame without IP and TCP headers and the time stamp option."""

FIRST_RETRY_S = 0.2
LAST_RETRY_S = 120.0
"""Retransmission time-outs of data start at the first, double, and stop at the second (Linux)."""

SET_UP_RETRIES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Waits between the attempts to set up a connection; after the last one the client gives up (Linux)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """How what one pod sends fares on its way.

    Attributes
    ----------
    loss
        Probability that a packet is lost, each by itself.
    latency_s, jitter_s
        Time a packet takes, uniform within `latency_s` plus or minus `jitter_s`.
    cut
        Whether nothing gets through at all.
    bytes_per_s
        What the pod may send at most; zero without a limit.
    """

    loss: float = 0.0
    latency_s: float = 0.0
    jitter_s: float = 0.0
    cut: bool = False
    bytes_per_s: float = 0.0

    def towards(self, receiver: Link) -> Link:
        """Return the link to a pod with a link of its own: only a cut there stops what arrives."""
        return replace(self, cut=True) if receiver.cut and not self.cut else self

    def lost(self, rng: Random, packets: int) -> int:
        """Draw how many of `packets` are lost."""
        if self.cut:
            return packets
        if self.loss <= 0.0:
            return 0
        return sum(rng.random() < self.loss for _ in range(packets))

    def travel_s(self, rng: Random) -> float:
        """Draw how long one chunk is under way."""
        jitter_s = rng.uniform(-self.jitter_s, self.jitter_s) if self.jitter_s else 0.0
        return max(0.0, self.latency_s + jitter_s)


CLEAR = Link()


def packets(size: int) -> int:
    """Return how many packets carry `size` bytes; a close without data still takes one."""
    return -(-size // PACKET_BYTES) or 1


@dataclass(kw_only=True, slots=True)
class _Chunk:
    missing: int
    arrival_s: float = 0.0
    queued_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowStep:
    """What happened on a flow at one instant."""

    passed: int = 0
    lost: int = 0
    delivered: int = 0


class Flow:
    """One direction of a connection: chunks that were sent and have not arrived yet, in order.

    Each packet of a chunk is lost or not by itself. All missing packets are sent again when the time-out ends,
    which doubles until the first chunk in line is complete. A chunk arrives when it is complete, has travelled,
    and all before it have arrived.
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
        """Put one chunk of `count` packets on the link, which waits `queued_s` before it."""
        chunk = _Chunk(missing=count, queued_s=queued_s)
        self._chunks.append(chunk)
        lost = self._transmit(chunk, now_s, link)
        if lost and self._retry_at_s is None:
            self._retry_s = FIRST_RETRY_S
            self._retry_at_s = now_s + self._retry_s
        return FlowStep(passed=count - lost, lost=lost)

    def due_s(self) -> float | None:
        """Return the instant at which `step` has something to do, or None."""
        if not self._chunks:
            return None
        head = self._chunks[0]
        if head.missing:
            return self._retry_at_s
        return head.arrival_s if self._retry_at_s is None else min(head.arrival_s, self._retry_at_s)

    def step(self, now_s: float, link: Link) -> FlowStep:
        """Send again what is due and count the chunks that have arrived."""
        passed = lost = 0
        if self._retry_at_s is not None and self._retry_at_s <= now_s:
            head = self._chunks[0]
            stuck = head.missing > 0
            for chunk in self._chunks:
                if chunk.missing:
                    sent = chunk.missing
                    failed = self._transmit(chunk, now_s, link)
                    passed, lost = passed + sent - failed, lost + failed
            missing = any(chunk.missing for chunk in self._chunks)
            self._retry_s = min(2 * self._retry_s, LAST_RETRY_S) if stuck and head.missing else FIRST_RETRY_S
            self._retry_at_s = now_s + self._retry_s if missing else None
        delivered = 0
        while self._chunks and not self._chunks[0].missing and self._chunks[0].arrival_s <= now_s:
            self._chunks.popleft()
            delivered += 1
        return FlowStep(passed=passed, lost=lost, delivered=delivered)

    def _transmit(self, chunk: _Chunk, now_s: float, link: Link) -> int:
        chunk.missing = link.lost(self._rng, chunk.missing)
        if not chunk.missing:
            chunk.arrival_s = max(now_s + chunk.queued_s + link.travel_s(self._rng), self._last_arrival_s)
            self._last_arrival_s = chunk.arrival_s
        return chunk.missing
