"""The relay process: forwards connections for all addresses of an episode."""

from __future__ import annotations

import asyncio
import enum
import gc
import itertools
import logging
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from faultset.collector.ipc.channel import serve
from faultset.collector.platforms.impairments import Impairment
from faultset.collector.platforms.local.messages import (
    ConfigureRelay,
    PodCounters,
    ReadCounters,
    ReadImpairedCounts,
    RelayState,
    RelayTarget,
)
from faultset.collector.platforms.local.relay.connection import Connection
from faultset.collector.platforms.local.relay.pods import CLEAR, Link, Pod, build_rules, combine_impairments
from faultset.collector.platforms.local.relay.refusals import Address, ListeningSockets, RefusalLimit, ignore_packets
from faultset.core.processes import die_with_parent

_BACKLOG = 512
_ACCEPTS_PER_WAKE = 64

logger = logging.getLogger(__name__)


class _Behaviour(enum.Enum):
    """How an address responds to attempts to connect."""

    ACCEPT = enum.auto()
    REFUSE = enum.auto()
    IGNORE = enum.auto()


class Forward:
    """Forwards connections to an address while one of its targets accepts them; otherwise the kernel refuses them.

    An address without targets can also ignore connections for some time.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        *,
        rng: Random,
        kernel: ListeningSockets,
        by_ip: Callable[[str], Pod],
        by_name: Callable[[str | None], Pod],
    ):
        self.name = name
        self.address = address
        self._rng = rng
        self._kernel = kernel
        self._by_ip = by_ip
        self._by_name = by_name
        self._targets: tuple[RelayTarget, ...] = ()
        self._accepting: set[RelayTarget] = set()
        self._next = 0
        self._behaviour = _Behaviour.REFUSE
        self._ignore_until_s = 0.0
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.error: str | None = None

    @property
    def listening(self) -> bool:
        return self._behaviour is _Behaviour.ACCEPT

    def set_targets(self, targets: tuple[RelayTarget, ...]) -> None:
        """Change the targets of new connections; open connections are kept."""
        if targets != self._targets:
            self._targets = targets
            self._accepting &= set(targets)
            self.probe()

    def ignore(self, until_s: float) -> None:
        """Ignore connections until a time on the event loop's clock, or until there are targets."""
        self._ignore_until_s = max(self._ignore_until_s, until_s)
        self._adjust()

    def probe(self) -> None:
        """Check which targets accept connections, and start or stop listening accordingly.

        Called often while not listening, and when a target has closed a connection.
        """
        for target in self._targets:
            if target in self._accepting and not self._kernel.silent:
                continue
            if self._kernel.is_listening(target.ip, target.port):
                self._accepting.add(target)
            else:
                self._accepting.discard(target)
        self._adjust()

    def close(self) -> None:
        """Stop listening; open connections are kept."""
        self._targets = ()
        self._accepting.clear()
        self._ignore_until_s = 0.0
        self._adjust()

    def _adjust(self) -> None:
        if self._accepting:
            behaviour = _Behaviour.ACCEPT
        elif not self._targets and self._loop.time() < self._ignore_until_s:
            behaviour = _Behaviour.IGNORE
        else:
            behaviour = _Behaviour.REFUSE
        if behaviour is not self._behaviour:
            self._stop_listening()
            if behaviour is not _Behaviour.REFUSE:
                self._open(behaviour)

    def _stop_listening(self) -> None:
        self._behaviour = _Behaviour.REFUSE
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _open(self, behaviour: _Behaviour) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self.address)
            if behaviour is _Behaviour.IGNORE:
                ignore_packets(listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if self.error is None:
                logger.error("cannot listen on %s:%d for %s: %s", *self.address, self.name, error)
            self.error = str(error)
            return
        self.error = None
        self._listener, self._behaviour = listener, behaviour
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            if self._listener is None:
                return
            try:
                client_socket, (client_ip, _) = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept a connection to %s: %s", self.name, error)
                self._stop_listening()
                return
            client_socket.setblocking(False)
            self._next += 1
            target = self._targets[self._next % len(self._targets)]
            task = self._loop.create_task(self._connect(client_socket, client_ip, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, client_socket: socket.socket, client_ip: str, target: RelayTarget) -> None:
        client, pod = self._by_ip(client_ip), self._by_name(target.pod)
        connection = Connection(self._loop, self._rng, client, pod, on_target_end=self.probe)
        if not await connection.run(client_socket, client_ip, (target.ip, target.port)):
            self._accepting.discard(target)
            self._adjust()


PROBE_INTERVAL_S = 0.05
"""How often the targets of addresses without a listener are probed."""

LISTENING_PROBE_ROUNDS = 5
"""Rounds between two probes of a listening address; its connections usually notice a failure earlier."""


class Relay:
    """The forwarded addresses and the pods of one episode; needs a running event loop."""

    def __init__(self, seed: int = 0):
        self._rng = Random(seed)
        self._seed = seed
        self._kernel = ListeningSockets()
        self._pods: dict[str, Pod] = {}
        self._by_ip: dict[str, Pod] = {}
        self._forwards: dict[Address, Forward] = {}
        self._impairments: dict[tuple[str, Impairment], float] = {}
        self._outside = Pod("")
        self._refusals = RefusalLimit(self._ignore, asyncio.get_running_loop().time)
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    def configure(self, request: ConfigureRelay) -> RelayState:
        """Replace the configuration; unchanged routes and open connections are kept."""
        if request.seed is not None and request.seed != self._seed:
            self._seed = request.seed
            self._rng.seed(request.seed)
        now_s = asyncio.get_running_loop().time()
        # an unchanged impairment keeps its start time
        before = self._impairments
        keys = [(entry.pod, entry.impairment) for entry in request.impairments]
        self._impairments = {key: before.get(key, now_s) for key in keys}
        for name in self._pods.keys() - set(request.pods.values()):
            self._pods.pop(name).link = CLEAR
        for name in request.pods.values():
            pod = self._pods.setdefault(name, Pod(name))
            pod.link = self._link(name, now_s)
            impairments = (entry.impairment for entry in request.impairments if entry.pod == name)
            pod.rules = build_rules(impairments, pod.rules, now_s)
        self._by_ip = {ip: self._pods[name] for ip, name in request.pods.items()}
        routes = {(route.ip, route.port): route for route in request.routes}
        for address in self._forwards.keys() - routes.keys():
            self._forwards.pop(address).close()
        for address, route in routes.items():
            self._forward(route.name, address).set_targets(route.targets)
        self._refusals.watch([address for address, route in routes.items() if not route.targets])
        return self._state()

    def counters(self, request: ReadCounters) -> dict[str, PodCounters]:
        return {name: pod.counters() for name, pod in self._pods.items()}

    def impaired_counts(self, request: ReadImpairedCounts) -> dict[str, int]:
        """Return how many requests, or chunks under a bandwidth limit, have been impaired in each pod."""
        return {name: pod.impaired_count for name, pod in self._pods.items()}

    async def close(self) -> None:
        self._probing.cancel()
        for forward in self._forwards.values():
            forward.close()
        self._refusals.close()
        self._kernel.close()

    def _ignore(self, address: Address, until_s: float) -> None:
        self._forwards[address].ignore(until_s)

    def _forward(self, name: str, address: Address) -> Forward:
        if address not in self._forwards:
            self._forwards[address] = Forward(
                name,
                address,
                rng=self._rng,
                kernel=self._kernel,
                by_ip=lambda ip: self._by_ip.get(ip, self._outside),
                by_name=lambda pod: self._pods.get(pod or "", self._outside),
            )
        return self._forwards[address]

    def _state(self) -> RelayState:
        return RelayState(
            listening=tuple(forward.name for forward in self._forwards.values() if forward.listening),
            errors={forward.name: forward.error for forward in self._forwards.values() if forward.error},
        )

    def _link(self, name: str, now_s: float) -> Link:
        ages = [(entry, now_s - start_s) for (pod, entry), start_s in self._impairments.items() if pod == name]
        return combine_impairments(ages) if ages else CLEAR

    def _update_links(self) -> None:
        """Update the links of pods whose impairments vary over time."""
        now_s = asyncio.get_running_loop().time()
        for name in {pod for pod, impairment in self._impairments if impairment.changes and pod in self._pods}:
            self._pods[name].link = self._link(name, now_s)

    async def _probe(self) -> None:
        for round_ in itertools.count():
            self._update_links()
            for index, forward in enumerate(self._forwards.values()):
                if not forward.listening or (index + round_) % LISTENING_PROBE_ROUNDS == 0:
                    forward.probe()
            await asyncio.sleep(PROBE_INTERVAL_S)


async def _run(socket_path: Path, seed: int) -> None:
    relay = Relay(seed)
    server = await serve(
        socket_path,
        {ConfigureRelay: relay.configure, ReadCounters: relay.counters, ReadImpairedCounts: relay.impaired_counts},
    )
    async with server:
        try:
            await server.serve_forever()
        finally:
            await relay.close()


def main(socket_path: Path, seed: int = 0, parent: int | None = None) -> None:
    """Run the relay in this process until it is killed or its parent ends.

    Parameters
    ----------
    parent
        Process id that must still be the parent; None for the current parent.
    """
    die_with_parent(os.getppid() if parent is None else parent)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    gc.freeze()
    asyncio.run(_run(Path(socket_path), seed))
