"""A Service without endpoints refuses each client as often as Linux sends ICMP messages, and ignores other attempts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

from faultset.collector.platforms.local.relay.refusals import ICMP_BURST, ICMP_INTERVAL_S, RefusalLimit, TokenBucket

if TYPE_CHECKING:
    from conftest import Lab

FIRST_RETRANSMISSION_S = 1.0


class KernelPeer:
    """Linux' `inet_peer_xrlim_allow` in integers, with a jiffy of 1 ms."""

    def __init__(self, now: int, timeout: int):
        self.rate_tokens, self.rate_last, self.timeout = 0, now - 60_000, timeout

    def allow(self, now: int) -> bool:
        token = min(self.rate_tokens + now - self.rate_last, 6 * self.timeout)
        self.rate_last = now
        allowed = token >= self.timeout
        self.rate_tokens = token - self.timeout if allowed else token
        return allowed


@pytest.mark.parametrize("mean_ms", [50, 900, 2000])
def test_a_bucket_allows_the_messages_that_linux_allows(mean_ms: int) -> None:
    rng, now = Random(mean_ms), 0
    peer, bucket = KernelPeer(now, 1000), TokenBucket(0.0)
    outcomes = set()
    for _ in range(500):
        now += round(rng.expovariate(1 / mean_ms))
        now_s = now / 1000
        allowed = bucket.ready_s(now_s) - now_s < 1e-6
        assert peer.allow(now) == allowed
        if allowed:
            bucket.take(now_s)
        outcomes.add(allowed)
    assert True in outcomes
    assert (False in outcomes) == (mean_ms < 2000)


def test_a_refusal_without_a_token_delays_the_next_one() -> None:
    bucket = TokenBucket(0.0, interval_s=1.0, burst=2)
    for _ in range(4):
        bucket.take(0.0)
    assert bucket.ready_s(0.5) == 3.0
    assert bucket.ready_s(4.0) == 4.0
    assert not bucket.is_full(3.9)
    assert bucket.is_full(4.0)


def test_all_services_of_a_client_without_tokens_ignore_it_and_others_do_not() -> None:
    rate, geo, user = ("127.3.252.1", 7000), ("127.3.252.2", 7000), ("127.3.252.3", 7000)
    ignored: list[tuple[tuple[str, int], float]] = []

    async def exhaust() -> None:
        limit = RefusalLimit(lambda address, until_s: ignored.append((address, until_s)), clock=lambda: 10.0)
        limit.watch([rate, geo, user])
        limit.count_refusal("127.3.252.9", user)
        for address in (rate, geo) * (ICMP_BURST // 2):
            assert not ignored
            limit.count_refusal("127.3.252.8", address)
        limit.count_refusal("127.3.252.8", ("127.3.252.4", 7000))
        limit.close()

    asyncio.run(exhaust())
    assert sorted(ignored) == [(rate, 11.0), (geo, 11.0)]


def use_up(lab: Lab) -> int:
    """Connect to a Service without targets until it ignores an attempt; return how many it refused."""
    lab.targets = ()
    lab.configure()
    refused = 0
    with contextlib.suppress(TimeoutError):
        while refused < 100:
            with pytest.raises(ConnectionRefusedError):
                lab.connect(timeout_s=0.2)
            refused += 1
            time.sleep(0.01)
    return refused


def test_an_ignored_attempt_is_forwarded_once_there_is_a_target(lab: Lab) -> None:
    lab.serve()
    targets = lab.targets
    start = time.monotonic()
    refused = use_up(lab)
    assert ICMP_BURST <= refused <= ICMP_BURST + 1 + (time.monotonic() - start) / ICMP_INTERVAL_S
    assert lab.configure().listening == ()
    threading.Timer(0.2, lambda: (setattr(lab, "targets", targets), lab.configure())).start()
    start = time.monotonic()
    client = lab.connect()
    assert time.monotonic() - start > FIRST_RETRANSMISSION_S - 0.1
    assert lab.echo(client) == b"hello"


def test_an_ignored_attempt_is_refused_when_it_is_repeated(lab: Lab) -> None:
    use_up(lab)
    start = time.monotonic()
    assert lab.refuses()
    assert time.monotonic() - start > FIRST_RETRANSMISSION_S - 0.1


def test_clients_that_give_up_leave_nothing_open(lab: Lab) -> None:
    targets = lab.targets
    lab.serve()
    lab.configure()
    before = lab.relay_files()
    use_up(lab)
    for _ in range(5):
        with contextlib.suppress(TimeoutError, ConnectionRefusedError):
            lab.connect(timeout_s=0.02)
    lab.targets = targets
    lab.configure()
    assert lab.relay_files() == before


def test_a_pod_that_does_not_listen_refuses_without_limit(lab: Lab) -> None:
    lab.configure()
    assert all(lab.refuses() for _ in range(5 * ICMP_BURST))
