"""Single requests on their way to a pod: refused, held up, cut; and a pod that may send little."""

from __future__ import annotations

import time
from random import Random

import pytest

from faultset.collector.ipc.channel import decode, encode
from faultset.collector.platforms.api.impairments import Abort, Bandwidth, Hold, Impairment, Reset
from faultset.collector.platforms.local.relay.messages import PodImpairment, ReadDisturbed
from faultset.collector.platforms.local.relay.pods import RequestRule

from .conftest import Lab

REQUEST = b"POST /geo.Geo/Nearby HTTP/1.1\r\nHost: geo\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "impairment",
    [Abort(share=0.5), Reset(share=0.5, caller="search"), Hold(share=0.5, latency_s=0.1), Bandwidth(bytes_per_s=1.0)],
)
def test_an_impairment_arrives_as_what_it_was_sent(impairment: Impairment) -> None:
    sent = PodImpairment(pod="geo-1", impairment=impairment)
    assert decode(PodImpairment, encode(sent)) == sent


def test_a_rule_concerns_the_share_the_caller_and_the_path_that_it_names() -> None:
    rule = RequestRule(impairment=Abort(share=1.0, caller="search", path="/geo.Geo/Nearby"))
    assert rule.concerns("search-5d4f7-abcde", REQUEST, Random(0), 0.0)
    assert not rule.concerns("user-search-5d4f7-abcde", REQUEST, Random(0), 0.0)
    assert not rule.concerns("search-5d4f7-abcde", REQUEST.replace(b"Nearby", b"Other"), Random(0), 0.0)
    assert not rule.concerns("search-5d4f7-abcde", b"the rest of a body", Random(0), 0.0)
    half, rng = RequestRule(impairment=Abort(share=0.5)), Random(0)
    assert 400 < sum(half.concerns("any-1", REQUEST, rng, 0.0) for _ in range(1000)) < 600


def test_a_refused_request_is_answered_with_503_and_never_reaches_the_pod(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Abort(share=1.0))
    client.sendall(REQUEST)
    answer = b""
    while part := client.recv(4096):
        answer += part
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(b"service unavailable")
    assert len(server.peers) <= 1
    assert lab.channel.call(ReadDisturbed())["server-1"] == 1


def test_a_request_that_is_held_up_arrives_whole_and_in_order(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Hold(share=1.0, latency_s=0.3))
    begun = time.monotonic()
    client.sendall(REQUEST)
    time.sleep(0.05)
    client.sendall(b"body")
    assert lab.receive(client, len(REQUEST) + 4) == REQUEST + b"body"
    assert time.monotonic() - begun > 0.25


def test_a_connection_that_is_cut_ends_at_once(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Reset(share=1.0))
    client.sendall(REQUEST)
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_what_is_no_request_and_what_comes_after_the_rule_pass(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Abort(share=1.0))
    assert lab.echo(client) == b"hello"
    lab.heal()
    client.sendall(REQUEST)
    assert lab.receive(client, len(REQUEST)) == REQUEST


def test_a_pod_that_may_send_little_takes_its_time(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Bandwidth(bytes_per_s=10_000.0))
    begun = time.monotonic()
    client.sendall(b"y" * 4000)
    assert lab.receive(client, 4000) == b"y" * 4000
    assert time.monotonic() - begun > 0.35


def test_a_rule_rises_or_comes_and_goes_over_time() -> None:
    rising = RequestRule(impairment=Abort(share=1.0, rise_s=10.0), begun_s=100.0)
    rng = Random(0)
    assert not any(rising.concerns("any-1", REQUEST, rng, 100.0) for _ in range(100))
    assert 400 < sum(rising.concerns("any-1", REQUEST, rng, 105.0) for _ in range(1000)) < 600
    assert all(rising.concerns("any-1", REQUEST, rng, 120.0) for _ in range(100))
    going = RequestRule(impairment=Abort(share=1.0, on_s=3.0, off_s=2.0), begun_s=100.0)
    assert [going.concerns("any-1", REQUEST, rng, 100.0 + second) for second in range(8)] == [
        True, True, True, False, False, True, True, True,
    ]  # fmt: skip


def test_a_rule_goes_on_when_other_pods_change(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    lab.impair("server-1", Abort(share=1.0, rise_s=0.4))
    time.sleep(0.5)
    lab.configure()
    client = lab.connect()
    client.sendall(REQUEST)
    assert client.recv(12) == b"HTTP/1.1 503"
