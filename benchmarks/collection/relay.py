"""Cost of the relay: CPU per round trip and throughput, compared with a direct connection.

    python benchmarks/collection/relay.py [--round-trips 20000] [--connections 16] [--json]

One process answers, another is the relay, and this one sends requests over blocking sockets. Absolute figures depend on
the machine; ratios can be compared.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

import psutil

from faultset.collector.ipc.channel import Channel
from faultset.collector.platforms.local.messages import ConfigureRelay, RelayRoute, RelayTarget
from faultset.collector.platforms.local.relay.process import main as relay_main

DIRECT = ("127.9.1.2", 7001)
RELAYED = ("127.9.0.2", 7000)
REQUEST = b"q" * 300
ANSWER = b"a" * 1200
STREAM_BYTES = 256 << 20
CHUNK = b"s" * (64 << 10)


def answer_forever(ready: Event) -> None:
    """Answer every `REQUEST` with `ANSWER`, and the end of a stream with one byte; ignore other data."""
    poll = selectors.DefaultSelector()
    listener = socket.create_server(DIRECT, backlog=128)
    listener.setblocking(False)
    poll.register(listener, selectors.EVENT_READ)
    ready.set()
    while True:
        for key, _ in poll.select():
            if key.fileobj is listener:
                accepted, _ = listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                poll.register(accepted, selectors.EVENT_READ)
                continue
            endpoint = key.fileobj
            assert isinstance(endpoint, socket.socket)
            data = endpoint.recv(1 << 18)
            if not data:
                poll.unregister(endpoint)
                endpoint.close()
            elif data.endswith(b"q"):
                endpoint.sendall(ANSWER)
            elif data.endswith(b"."):
                endpoint.sendall(b"!")


def connect(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Open `count` connections as a pod would."""
    endpoints = [socket.create_connection(address, source_address=("127.9.1.1", 0)) for _ in range(count)]
    for endpoint in endpoints:
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return endpoints


def ask(address: tuple[str, int], round_trips: int, connections: int) -> None:
    """Make successive round trips on several connections at once."""
    endpoints = connect(address, connections)
    for _ in range(round_trips // connections):
        for endpoint in endpoints:
            endpoint.sendall(REQUEST)
        for endpoint in endpoints:
            missing = len(ANSWER)
            while missing:
                missing -= len(endpoint.recv(missing))
    for endpoint in endpoints:
        endpoint.close()


def stream(address: tuple[str, int]) -> None:
    """Send `STREAM_BYTES` over one connection and wait until they have arrived."""
    (endpoint,) = connect(address, 1)
    for _ in range(STREAM_BYTES // len(CHUNK)):
        endpoint.sendall(CHUNK)
    endpoint.sendall(b".")
    endpoint.recv(1)
    endpoint.close()


def measure_relay(work: Callable[[], None], relay: psutil.Process) -> tuple[float, float]:
    """Return wall seconds of the work and the CPU seconds the relay spent on it."""
    before, start = relay.cpu_times(), time.perf_counter()
    work()
    wall_s, after = time.perf_counter() - start, relay.cpu_times()
    return wall_s, after.user + after.system - before.user - before.system


def run(round_trips: int, connections: int) -> dict[str, float]:
    """Measure everything once."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    server = context.Process(target=answer_forever, args=(ready,), daemon=True)
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "relay.sock"
        relay = context.Process(target=relay_main, args=(path,), kwargs={"parent": os.getpid()}, daemon=True)
        relay.start()
        ready.wait()
        channel = Channel(path)
        target = RelayTarget(pod="answer-1", ip=DIRECT[0], port=DIRECT[1])
        route = RelayRoute(name="answer", ip=RELAYED[0], port=RELAYED[1], targets=(target,))
        pods = {"127.9.1.1": "ask-1", DIRECT[0]: "answer-1"}
        channel.call(ConfigureRelay(pods=pods, routes=(route,)))
        process = psutil.Process(relay.pid)
        figures: dict[str, float] = {}
        try:
            for label, count in (("one", 1), ("many", connections)):
                ask(RELAYED, 500, count)
                direct_s, _ = measure_relay(lambda count=count: ask(DIRECT, round_trips, count), process)
                relayed_s, cpu_s = measure_relay(lambda count=count: ask(RELAYED, round_trips, count), process)
                figures[f"{label}_direct_us_per_round_trip"] = direct_s / round_trips * 1e6
                figures[f"{label}_relayed_us_per_round_trip"] = relayed_s / round_trips * 1e6
                figures[f"{label}_relay_cpu_us_per_round_trip"] = cpu_s / round_trips * 1e6
                figures[f"{label}_relayed_to_direct"] = relayed_s / direct_s
                figures[f"{label}_relay_cpu_to_direct"] = cpu_s / direct_s
            direct_s, _ = measure_relay(lambda: stream(DIRECT), process)
            relayed_s, cpu_s = measure_relay(lambda: stream(RELAYED), process)
            figures["stream_direct_mb_per_s"] = STREAM_BYTES / direct_s / 1e6
            figures["stream_relayed_mb_per_s"] = STREAM_BYTES / relayed_s / 1e6
            figures["stream_relayed_to_direct"] = relayed_s / direct_s
            start = time.perf_counter()
            for _ in range(500):
                connect(RELAYED, 1)[0].close()
            figures["connect_and_close_us"] = (time.perf_counter() - start) / 500 * 1e6
            time.sleep(0.5)
            idle_s = 4.0
            _, cpu_s = measure_relay(lambda: time.sleep(idle_s), process)
            figures["idle_cpu_share"] = cpu_s / idle_s
        finally:
            channel.close()
            relay.kill()
            server.kill()
            relay.join()
            server.join()
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round-trips", type=int, default=20_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments.round_trips, arguments.connections)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, figure in figures.items():
            print(f"{name:36} {figure:10.3f}")


if __name__ == "__main__":
    main()
