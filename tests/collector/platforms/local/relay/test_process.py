"""The relay as a process: it ends with its parent."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from faultset.collector.ipc.channel import Channel, decode, encode
from faultset.collector.platforms.impairments import Abort, Bandwidth, Hold, Impairment, Reset
from faultset.collector.platforms.local.messages import PodImpairment, ReadCounters, ReadImpairedCounts
from faultset.collector.platforms.local.relay.pods import RequestRule
from faultset.collector.platforms.local.relay.refusals import ListeningSockets
from faultset.core.errors import PlatformError
from tests.collector.platforms.local.relay.conftest import Lab

_PARENT = """
import os, sys, time
from pathlib import Path
from faultset.collector.platforms.local.relay.process import main
parent = os.getpid()
if os.fork() == 0:
    main(Path(sys.argv[1]), parent=parent)
time.sleep(60)
"""


def gone(channel: Channel) -> bool:
    try:
        channel.call(ReadCounters())
    except PlatformError:
        return True
    return False


def test_the_relay_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(path)]) as parent:
        channel = Channel(path)
        channel.call(ReadCounters())
        parent.kill()
        assert any(gone(channel) for _ in range(100_000))
        channel.close()


def test_the_relay_does_not_start_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    code = (
        f"from faultset.collector.platforms.local.relay.process import main; main({str(path)!r}, parent=1_000_000_000)"
    )
    finished = subprocess.run([sys.executable, "-c", code], timeout=20, check=False)
    assert finished.returncode == 1
    assert not path.exists()


@pytest.mark.parametrize("silent", [True, False])
def test_only_an_address_where_a_process_listens_accepts(silent: bool) -> None:
    kernel = ListeningSockets(silent=silent)
    with socket.create_server(("127.3.250.1", 0)) as server:
        port = server.getsockname()[1]
        assert kernel.is_listening("127.3.250.1", port)
        assert not kernel.is_listening("127.3.250.2", port)
    assert not kernel.is_listening("127.3.250.1", port)
    kernel.close()


@pytest.mark.parametrize("silent", [True, False])
def test_a_process_that_listens_on_every_address_accepts_on_each(silent: bool) -> None:
    kernel = ListeningSockets(silent=silent)
    with socket.create_server(("127.3.250.3", 0)) as server:
        assert kernel.is_listening("127.3.250.3", server.getsockname()[1])
    kernel.close()


def test_a_look_up_leaves_no_connection_behind() -> None:
    kernel = ListeningSockets()
    if not kernel.silent:
        pytest.skip("the kernel does not look up sockets")
    with socket.create_server(("127.3.250.4", 0)) as server:
        assert kernel.is_listening(*server.getsockname())
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    kernel.close()


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
    assert rule.applies_to("search-5d4f7-abcde", REQUEST, Random(0), 0.0)
    assert not rule.applies_to("user-search-5d4f7-abcde", REQUEST, Random(0), 0.0)
    assert not rule.applies_to("search-5d4f7-abcde", REQUEST.replace(b"Nearby", b"Other"), Random(0), 0.0)
    assert not rule.applies_to("search-5d4f7-abcde", b"the rest of a body", Random(0), 0.0)
    half, rng = RequestRule(impairment=Abort(share=0.5)), Random(0)
    assert 400 < sum(half.applies_to("any-1", REQUEST, rng, 0.0) for _ in range(1000)) < 600


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
    assert lab.channel.call(ReadImpairedCounts())["server-1"] == 1


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
    rising = RequestRule(impairment=Abort(share=1.0, rise_s=10.0), start_s=100.0)
    rng = Random(0)
    assert not any(rising.applies_to("any-1", REQUEST, rng, 100.0) for _ in range(100))
    assert 400 < sum(rising.applies_to("any-1", REQUEST, rng, 105.0) for _ in range(1000)) < 600
    assert all(rising.applies_to("any-1", REQUEST, rng, 120.0) for _ in range(100))
    going = RequestRule(impairment=Abort(share=1.0, on_s=3.0, off_s=2.0), start_s=100.0)
    assert [going.applies_to("any-1", REQUEST, rng, 100.0 + second) for second in range(8)] == [
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
