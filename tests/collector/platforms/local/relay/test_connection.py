"""The relay without impairments: who is refused, who stays connected, what is counted."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from faultset.collector.platforms.impairments import Delay, Loss, Partition
from faultset.collector.platforms.local.messages import ConfigureRelay, PodImpairment, RelayState

if TYPE_CHECKING:
    from conftest import Lab


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


def seconds(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def test_delay_holds_back_what_the_pod_answers(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.impair("server-1", Delay(latency_s=0.1, jitter_s=0.0))
    assert seconds(lambda: lab.echo(client)) >= 0.1
    lab.heal()
    assert lab.echo(client) == b"hello"


def test_delay_of_the_caller_holds_back_what_it_asks(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.impair("client-1", Delay(latency_s=0.1))
    assert seconds(lambda: lab.echo(client)) >= 0.1


def test_delay_of_both_ends_adds_up_and_a_new_connection_pays_twice(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    both = ("client-1", "server-1")
    lab.impairments = tuple(PodImpairment(pod=pod, impairment=Delay(latency_s=0.05)) for pod in both)
    lab.configure()
    client = lab.connect()
    assert seconds(lambda: lab.echo(client)) >= 0.2
    assert seconds(lambda: lab.echo(client)) >= 0.1


def test_delay_keeps_the_order_of_a_stream(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Delay(latency_s=0.02, jitter_s=0.02))
    data = b"".join(b"%06d" % number for number in range(20_000))
    client.sendall(data)
    assert lab.receive(client, len(data)) == data


def test_lost_packets_come_after_a_time_out_and_are_counted(lab: Lab) -> None:
    lab.serve()
    lab.configure(seed=11)
    client = lab.connect()
    lab.echo(client)
    lab.impair("server-1", Loss(probability=0.5))
    retried = []
    for _ in range(6):
        before = lab.counters("server-1").transmit_packets_dropped
        took_s = seconds(lambda: lab.echo(client))
        retried.append(lab.counters("server-1").transmit_packets_dropped > before)
        assert took_s >= (0.2 if retried[-1] else 0.0)
    assert set(retried) == {True, False}
    assert lab.counters("server-1").receive_packets_dropped == 0
    assert lab.counters("client-1").transmit_packets_dropped == 0


def test_nearly_nothing_passes_at_99_percent_loss(lab: Lab) -> None:
    lab.serve()
    lab.configure(seed=12)
    client = lab.connect()
    lab.echo(client)
    lab.impair("server-1", Loss(probability=0.99))
    client.settimeout(0.5)
    client.sendall(b"hello")
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert lab.counters("server-1").receive_bytes == 10


def test_set_up_of_a_connection_waits_a_second_for_a_lost_packet(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    lab.impair("server-1", Loss(probability=1.0))
    client = lab.connect()
    client.sendall(b"hello")
    assert lab.eventually(lambda: lab.counters("server-1").transmit_packets_dropped == 1)
    lab.heal()
    assert seconds(lambda: lab.receive(client, 5)) >= 0.8
    assert len(server.connections) == 1


def test_a_client_that_gives_up_during_set_up_never_reaches_the_target(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    lab.impair("server-1", Partition())
    client = lab.connect()
    client.sendall(b"hello")
    assert lab.eventually(lambda: lab.counters("server-1").receive_packets_dropped == 1)
    client.close()
    lab.heal()
    assert lab.echo(lab.connect()) == b"hello"
    assert len(server.connections) == 1


@pytest.mark.parametrize("pod", ["client-1", "server-1"])
def test_a_partition_holds_both_directions_and_resumes_with_a_retransmission(lab: Lab, pod: str) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.impair(pod, Partition())
    client.settimeout(0.25)
    client.sendall(b"from client")
    server.connections[0].sendall(b"from server")
    with pytest.raises(TimeoutError):
        client.recv(1)
    lab.heal()
    client.settimeout(5)
    assert lab.receive(client, 22) == b"from serverfrom client"
    dropped = lab.counters(pod)
    assert dropped.transmit_packets_dropped >= 1
    assert dropped.receive_packets_dropped >= 1


def test_a_close_does_not_arrive_through_a_partition(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.impair("server-1", Partition())
    server.close()
    client.settimeout(0.25)
    with pytest.raises(TimeoutError):
        client.recv(1)
    lab.heal()
    client.settimeout(5)
    assert client.recv(1) == b""


def test_connections_that_both_sides_gave_up_during_a_partition_are_let_go(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    clients = [lab.connect() for _ in range(5)]
    for client in clients:
        lab.echo(client)
    before = lab.relay_files()
    lab.impair("server-1", Partition())
    for place, client in enumerate(clients):
        client.sendall(b"never answered")
        client.shutdown(socket.SHUT_WR)
        server.reset(place)
        lab.reset(client)
    lab.heal()
    assert lab.eventually(lambda: lab.relay_files() == before - 10)


def test_the_partition_of_a_pod_that_is_gone_ends(lab: Lab) -> None:
    server = lab.serve()
    lab.configure()
    client = lab.connect()
    lab.echo(client)
    lab.impair("server-1", Partition())
    server.close()
    lab.channel.call(ConfigureRelay(pods={lab.client_ip: "client-1"}, routes=()))
    assert client.recv(1) == b""


def test_what_waits_on_the_way_is_limited(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("client-1", Partition())
    client.settimeout(0.2)
    sent = lab.fill(client)
    assert sent < 64 << 20
    lab.heal()
    client.settimeout(5)
    assert lab.receive(client, sent) == b"y" * sent


def test_other_pods_do_not_notice(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    lab.impair("server-2", Partition())
    assert lab.echo(lab.connect()) == b"hello"
    assert lab.counters("server-1").receive_packets_dropped == 0


def test_a_delay_that_comes_and_goes_is_there_and_not_there(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Delay(latency_s=0.25, on_s=0.7, off_s=0.7))
    begun = time.monotonic()
    took: list[tuple[float, float]] = []
    while time.monotonic() - begun < 2.6:
        sent = time.monotonic()
        lab.echo(client)
        took.append((sent - begun, time.monotonic() - sent))
        time.sleep(0.05)
    # away from the ends of the intervals, where the relay may be late
    middle = [(int(at_s // 0.7) % 2, took_s) for at_s, took_s in took if 0.15 < at_s % 0.7 < 0.4]
    assert {half for half, _ in middle} == {0, 1}
    assert all(took_s >= 0.25 for half, took_s in middle if half == 0)
    assert all(took_s < 0.25 for half, took_s in middle if half == 1)


def test_a_delay_grows_from_nothing(lab: Lab) -> None:
    lab.serve()
    lab.configure()
    client = lab.connect()
    lab.impair("server-1", Delay(latency_s=0.4, rise_s=2.0))
    begun = time.monotonic()
    took: list[float] = []
    for at_s in (0.0, 1.0, 2.2):
        time.sleep(max(0.0, begun + at_s - time.monotonic()))
        took.append(seconds(lambda: lab.echo(client)))
    assert took[0] < took[1] < took[2]
    assert took[1] >= 0.15
    assert took[2] >= 0.4
