"""A relay process, and small servers behind it, on addresses that no test shares with another."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.local.messages import (
    ConfigureRelay,
    PodCounters,
    PodImpairment,
    ReadCounters,
    RelayRoute,
    RelayState,
    RelayTarget,
)

_numbers = itertools.cycle(range(1, 250))


def reserve_network() -> tuple[int, socket.socket]:
    """Return the number of a network 127.3.N that is reserved until the socket is closed."""
    for number in _numbers:
        try:
            return number, socket.create_server((f"127.3.{number}.254", 6999))
        except OSError:
            continue
    raise AssertionError("the numbers never end")


def reset(endpoint: socket.socket) -> None:
    """Reset a connection, as the kernel does if a process has not read everything."""
    endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    endpoint.shutdown(socket.SHUT_RD)
    endpoint.close()


class EchoServer:
    """Sends back what it receives, on every connection, until it is closed."""

    def __init__(self, ip: str, port: int = 7001, *, greeting: bytes = b""):
        self.listener = socket.create_server((ip, port))
        self.greeting = greeting
        self.resetting = False
        self.peers: list[str] = []
        self.connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, (ip, _) = self.listener.accept()
            except OSError:
                return
            self.peers.append(ip)
            self.connections.append(connection)
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        try:
            connection.sendall(self.greeting)
            while data := connection.recv(1 << 16):
                connection.sendall(data)
            if not self.resetting:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop_listening(self) -> None:
        """Refuse new connections and keep the others."""
        self.listener.shutdown(socket.SHUT_RDWR)
        # what it has accepted is known only once it has ended
        self._accepting.join(5.0)
        self.listener.close()

    def reset(self, place: int) -> None:
        """Reset the connection that was accepted as number `place`."""
        self.resetting = True
        reset(self.connections[place])

    def close(self) -> None:
        """Refuse new connections and close the others, like a process that ends."""
        if self.listener.fileno() >= 0:
            self.stop_listening()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


class Lab:
    """Two pods, a Service in front of the second, and the relay between them."""

    def __init__(self, channel: Channel, relay_pid: int):
        number, self._reservation = reserve_network()
        self.relay_pid = relay_pid
        self.channel = channel
        self.client_ip = f"127.3.{number}.1"
        self.target_ip = f"127.3.{number}.2"
        self.spare_ip = f"127.3.{number}.3"
        self.service = (f"127.3.{number}.100", 7000)
        self.servers: list[EchoServer] = []
        self.sockets: list[socket.socket] = []
        self.targets: tuple[RelayTarget, ...] = (self.target("server-1", self.target_ip),)
        self.impairments: tuple[PodImpairment, ...] = ()

    @staticmethod
    def target(pod: str | None, ip: str, port: int = 7001) -> RelayTarget:
        return RelayTarget(pod=pod, ip=ip, port=port)

    def configure(self, *, seed: int | None = None) -> RelayState:
        ip, port = self.service
        return self.channel.call(
            ConfigureRelay(
                pods={self.client_ip: "client-1", self.target_ip: "server-1", self.spare_ip: "server-2"},
                routes=(RelayRoute(name="server", ip=ip, port=port, targets=self.targets),),
                impairments=self.impairments,
                seed=seed,
            )
        )

    def impair(self, pod: str, impairment: Impairment) -> None:
        self.impairments = (PodImpairment(pod=pod, impairment=impairment),)
        self.configure()

    def heal(self) -> None:
        self.impairments = ()
        self.configure()

    def serve(self, ip: str | None = None, *, greeting: bytes = b"") -> EchoServer:
        server = EchoServer(ip or self.target_ip, greeting=greeting)
        self.servers.append(server)
        return server

    def connect(self, *, timeout_s: float = 5.0) -> socket.socket:
        client = socket.create_connection(self.service, timeout=timeout_s, source_address=(self.client_ip, 0))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sockets.append(client)
        return client

    def refuses(self) -> bool:
        try:
            self.connect().close()
        except ConnectionError as error:
            return isinstance(error, ConnectionRefusedError)
        return False

    def relay_files(self) -> int:
        """Return how many files and sockets the relay has open."""
        return psutil.Process(self.relay_pid).num_fds()

    def counters(self, pod: str) -> PodCounters:
        return self.channel.call(ReadCounters())[pod]

    @staticmethod
    def reset(endpoint: socket.socket) -> None:
        """Reset a connection from the client's side."""
        reset(endpoint)

    @staticmethod
    def receive(endpoint: socket.socket, size: int) -> bytes:
        """Read exactly `size` bytes, or fewer when the connection ends."""
        data = b""
        while len(data) < size and (part := endpoint.recv(size - len(data))):
            data += part
        return data

    def echo(self, endpoint: socket.socket, data: bytes = b"hello") -> bytes:
        """Send data and read as much."""
        endpoint.sendall(data)
        return self.receive(endpoint, len(data))

    @staticmethod
    def fill(endpoint: socket.socket) -> int:
        """Send until the socket accepts no more data; return the number of bytes."""
        sent = 0
        try:
            while sent < 1 << 30:
                sent += endpoint.send(b"y" * (1 << 16))
        except TimeoutError:
            return sent
        raise AssertionError("everything was taken")

    @staticmethod
    def eventually(condition: Callable[[], bool], *, timeout_s: float = 5.0) -> bool:
        """Wait until a condition holds; return whether it did."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def close(self) -> None:
        for endpoint in self.sockets:
            endpoint.close()
        for server in self.servers:
            server.close()
        self.channel.call(ConfigureRelay(pods={}, routes=()))
        self._reservation.close()


@pytest.fixture(scope="session")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    path = tmp_path_factory.mktemp("relay") / "relay.sock"
    code = f"from faultset.collector.platforms.local.relay.process import main; main({str(path)!r})"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=dict(os.environ)) as process:
        try:
            yield path, process.pid
        finally:
            process.kill()


@pytest.fixture
def lab(relay: tuple[Path, int]) -> Iterator[Lab]:
    channel = Channel(relay[0])
    lab = Lab(channel, relay[1])
    try:
        yield lab
    finally:
        lab.close()
        channel.close()
