"""The relay without impairments: who is refused, who stays connected, what is counted."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from faultset.collector.platforms.local.relay.messages import ConfigureRelay, RelayState

if TYPE_CHECKING:
    from .conftest import Lab


def test_a_service_without_targets_refuses(lab: Lab) -> None:
    lab.targets = ()
    assert lab.configure() == RelayState(listening=(), errors={})
    assert lab.refuses()


def test_a_service_refuses_until_its_target_listens(lab: Lab) -> None:
    lab.configure()
    assert lab.refuses()
    lab.serve()
    assert lab.eventually(lambda: not lab.refuses())
    assert lab.echo(lab.connect()) == b"hello"


def test_a_service_refuses_after_its_target_stopped_listening(lab: Lab) -> None:
    server = lab.serve()
    assert lab.configure().listening == ("server",)
    client = lab.connect()
    assert lab.echo(client) == b"hello"
    server.stop_listening()
    assert lab.eventually(lab.refuses)
    assert lab.echo(client) == b"hello"
    lab.serve()
    assert lab.eventually(lambda: not lab.refuses())


def test_a_port_where_nothing_listens_refuses(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.targets = (lab.target("server-1", lab.target_ip, 7002),)
    assert lab.configure().listening == ()
    assert lab.refuses()
    assert lab.echo(client) == b"hello"


def test_established_connections_survive_any_change_of_targets(lab: Lab) -> None:
    lab.serve()
    lab.serve(lab.spare_ip, greeting=b"new")
    lab.configure()
    old = lab.connect()
    assert lab.echo(old) == b"hello"
    lab.targets = (lab.target("server-2", lab.spare_ip),)
    lab.configure()
    assert lab.receive(lab.connect(), 3) == b"new"
    lab.targets = ()
    lab.configure()
    assert lab.echo(old) == b"hello"
    lab.channel.call(ConfigureRelay(pods={}, routes=()))
    assert lab.echo(old) == b"hello"


def test_configuring_the_same_again_changes_nothing(lab: Lab) -> None:
    lab.serve()
    first = lab.configure()
    client = lab.connect()
    assert lab.echo(client) == b"hello"
    before = lab.counters("server-1")
    assert lab.configure() == first
    assert lab.counters("server-1") == before
    assert lab.echo(client) == b"hello"


def test_new_connections_take_turns_between_targets(lab: Lab) -> None:
    lab.serve(greeting=b"1")
    lab.serve(lab.spare_ip, greeting=b"2")
    lab.targets += (lab.target("server-2", lab.spare_ip),)
    lab.configure()
    greetings = [lab.receive(lab.connect(), 1) for _ in range(6)]
    assert sorted(greetings) == [b"1"] * 3 + [b"2"] * 3


def test_a_target_that_does_not_listen_keeps_its_share_of_connections(lab: Lab) -> None:
    lab.serve(greeting=b"1")
    lab.targets += (lab.target("server-2", lab.spare_ip),)
    lab.configure()
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(lab.receive(lab.connect(), 1))
        except ConnectionResetError:
            outcomes.append(b"reset")
    assert sorted(outcomes) == [b"1", b"1", b"reset", b"reset"]
    assert not lab.refuses()


def test_the_target_sees_the_address_of_the_pod_that_calls(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    assert lab.echo(lab.connect()) == b"hello"
    assert server.peers == [lab.client_ip]


def test_bytes_and_packets_are_counted_for_both_ends(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client, b"x" * 1448)
    before = {pod: lab.counters(pod) for pod in ("client-1", "server-1")}
    lab.echo(client, b"x" * 100)
    for pod in ("client-1", "server-1"):
        grown = {name: value - getattr(before[pod], name) for name, value in asdict(lab.counters(pod)).items()}
        assert grown == {
            "receive_bytes": 100,
            "transmit_bytes": 100,
            "receive_packets": 1,
            "transmit_packets": 1,
            "receive_packets_dropped": 0,
            "transmit_packets_dropped": 0,
        }


def test_counters_start_anew_with_a_new_pod_and_are_kept_otherwise(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    lab.echo(lab.connect())
    assert lab.counters("server-1").receive_bytes == 5
    lab.targets = ()
    lab.configure()
    assert lab.counters("server-1").receive_bytes == 5
    lab.channel.call(ConfigureRelay(pods={}, routes=()))
    lab.configure()
    assert lab.counters("server-1").receive_bytes == 0


def test_a_client_without_a_pod_can_connect(lab: Lab) -> None:
    lab.serve()
    lab.targets = (lab.target(None, lab.target_ip),)
    lab.configure()
    with socket.create_connection(lab.service, timeout=5) as stranger:
        assert lab.echo(stranger) == b"hello"
    assert lab.counters("server-1").receive_bytes == 0


def test_a_close_arrives_at_the_other_side(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    server.close()
    assert client.recv(1) == b""


def test_a_half_close_leaves_the_other_direction_open(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    client.sendall(b"a" * 100_000)
    client.shutdown(socket.SHUT_WR)
    assert lab.receive(client, 200_000) == b"a" * 100_000


def test_a_reset_in_the_middle_of_a_request_arrives_as_a_reset(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    server.reset(0)
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_server_that_is_killed_in_the_middle_of_a_request_ends_the_connection(lab: Lab) -> None:
    code = """
import socket, sys
server = socket.create_server((sys.argv[1], 7001))
connection, _ = server.accept()
connection.recv(100)
connection.sendall(b"half of")
connection.recv(100)
"""
    with subprocess.Popen([sys.executable, "-c", code, lab.target_ip]) as server:
        lab.configure()
        assert lab.eventually(lambda: lab.configure().listening == ("server",))
        client = lab.connect()
        client.sendall(b"ask")
        assert lab.receive(client, 7) == b"half of"
        server.kill()
        assert client.recv(1) == b""
    assert lab.eventually(lab.refuses)


def test_a_client_that_is_killed_resets_its_server(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.reset(client)
    assert lab.eventually(lambda: _state(server.connections[0]) != _ESTABLISHED)


def test_a_slow_reader_holds_back_the_writer(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    client.settimeout(0.3)
    sent = lab.fill(client)
    assert sent < 64 << 20
    client.settimeout(5)
    assert lab.receive(client, sent) == b"y" * sent


def test_much_data_arrives_whole_in_both_directions_at_once(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    data = bytes(range(256)) * 32_768
    writer = threading.Thread(target=client.sendall, args=(data,))
    writer.start()
    assert lab.receive(client, len(data)) == data
    writer.join()


def test_an_address_that_is_taken_is_reported(lab: Lab) -> None:
    lab.serve()
    with socket.create_server(lab.service):
        reported = lab.configure()
        assert reported.listening == ()
        assert "in use" in reported.errors["server"]
    assert lab.eventually(lambda: lab.configure().listening == ("server",))


_ESTABLISHED = 1


def _state(endpoint: socket.socket) -> int:
    return endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] if endpoint.fileno() >= 0 else 0
