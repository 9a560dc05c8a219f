"""Limit how often connections to Services without endpoints are refused, as Linux does on a cluster.

On a cluster, kube-proxy refuses a connection with an ICMP message. Linux limits these messages per client; beyond the
limit it ignores attempts to connect, which the client's kernel retries after 1, 2, 3, 4, 5, 7, 11 s and so on.

On the embedded platform, the kernel refuses connections to an address without a listener, and reports each refusal. To
ignore attempts, the relay opens a listener that drops all packets. It cannot drop only the packets of one client, so
all clients of a Service are ignored while one of them has reached its limit.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection

from faultset.collector.platforms.local.relay.kernel_sockets import Address, RefusedConnections

ICMP_INTERVAL_S = 1.0
"""Time after which a client may receive another message (`icmp_ratelimit` in Linux)."""

ICMP_BURST = 6
"""Maximum number of messages in a burst (`XRLIM_BURST_FACTOR` in Linux).

The limit for all clients together, 1000 messages per second, is not simulated.
"""


class TokenBucket:
    """The limit of ICMP messages to one address, as in Linux (`inet_peer_xrlim_allow`); starts full.

    Parameters
    ----------
    now_s
        Current time on any clock.
    interval_s
        Time after which a token is added.
    burst
        Maximum number of tokens.
    """

    def __init__(self, now_s: float, *, interval_s: float = ICMP_INTERVAL_S, burst: int = ICMP_BURST):
        self._interval_s, self._limit_s = interval_s, burst * interval_s
        self._saved_s, self._updated_s = self._limit_s, now_s

    def take(self, now_s: float) -> None:
        """Take a token; if none is left, borrow the next one."""
        self._saved_s = self._saved_at(now_s) - self._interval_s
        self._updated_s = now_s

    def ready_s(self, now_s: float) -> float:
        """Return the time from which a token is available; `now_s` if one is available now."""
        return now_s + max(0.0, self._interval_s - self._saved_at(now_s))

    def is_full(self, now_s: float) -> bool:
        """Return whether the bucket has the maximum number of tokens."""
        return self._saved_at(now_s) >= self._limit_s

    def _saved_at(self, now_s: float) -> float:
        return min(self._saved_s + now_s - self._updated_s, self._limit_s)


class RefusalLimit:
    """Limits how often each client is refused.

    Parameters
    ----------
    ignore
        Called with an address and the time until which it must ignore attempts.
    clock
        Returns the time in seconds.
    """

    def __init__(self, ignore: Callable[[Address, float], None], clock: Callable[[], float] = time.monotonic):
        self._ignore, self._clock = ignore, clock
        self._buckets: dict[str, TokenBucket] = {}
        self._clients: defaultdict[Address, set[str]] = defaultdict(set)
        self._addresses: frozenset[Address] = frozenset()
        self._refused = RefusedConnections(self.count_refusal)

    def watch(self, addresses: Collection[Address]) -> None:
        """Replace the addresses that refuse all attempts."""
        self._addresses = frozenset(addresses)
        for address in self._clients.keys() - self._addresses:
            del self._clients[address]
        now_s = self._clock()
        self._buckets = {ip: bucket for ip, bucket in self._buckets.items() if not bucket.is_full(now_s)}
        self._refused.watch({ip for ip, _ in self._addresses})

    def count_refusal(self, client_ip: str, address: Address) -> None:
        """Count a refused attempt; if the client has no token left, all addresses that it has tried ignore attempts."""
        if address not in self._addresses:
            return
        now_s = self._clock()
        bucket = self._buckets.setdefault(client_ip, TokenBucket(now_s))
        bucket.take(now_s)
        self._clients[address].add(client_ip)
        ready_s = bucket.ready_s(now_s)
        if ready_s > now_s:
            for tried_address, clients in self._clients.items():
                if client_ip in clients:
                    self._ignore(tried_address, ready_s)

    def close(self) -> None:
        """Stop counting."""
        self._refused.close()
