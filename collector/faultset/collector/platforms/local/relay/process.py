"""The relay as a process: configured over its socket, it holds one state for all addresses of an episode."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import resource
from pathlib import Path
from random import Random

from faultset.collector.ipc.channel import serve
from faultset.collector.platforms.api.impairments import Impairment
from faultset.collector.platforms.local.relay.forwards import Forward
from faultset.collector.platforms.local.relay.listening_sockets import ListeningSockets
from faultset.collector.platforms.local.relay.messages import (
    ConfigureRelay,
    PodCounters,
    ReadCounters,
    ReadDisturbed,
    RelayState,
)
from faultset.collector.platforms.local.relay.pods import Pod, link_of, rules_of
from faultset.collector.platforms.local.relay.schedule import CLEAR, Link
from faultset.core.processes import die_with_parent

PROBE_INTERVAL_S = 0.05
"""How often the targets of addresses that refuse are looked at."""

LISTENING_PROBE_SHARE = 5
"""Addresses that accept are looked at in one of so many rounds: their connections tell earlier."""


class Relay:
    """All forwards and pods of one episode. Needs a running event loop."""

    def __init__(self, seed: int = 0):
        self._rng = Random(seed)
        self._seed = seed
        self._kernel = ListeningSockets()
        self._pods: dict[str, Pod] = {}
        self._by_ip: dict[str, Pod] = {}
        self._forwards: dict[tuple[str, int], Forward] = {}
        self._impairments: dict[tuple[str, Impairment], float] = {}
        self._stranger = Pod("")
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    def configure(self, wanted: ConfigureRelay) -> RelayState:
        """Take over a full state; what it says already is left alone, and connections stay."""
        if wanted.seed is not None and wanted.seed != self._seed:
            self._seed = wanted.seed
            self._rng.seed(wanted.seed)
        now_s = asyncio.get_running_loop().time()
        # one that was there before goes on
        before = self._impairments
        keys = [(one.pod, one.impairment) for one in wanted.impairments]
        self._impairments = {key: before.get(key, now_s) for key in keys}
        for name in self._pods.keys() - set(wanted.pods.values()):
            self._pods.pop(name).link = CLEAR
        for name in wanted.pods.values():
            pod = self._pods.setdefault(name, Pod(name))
            pod.link = self._link(name, now_s)
            pod.rules = rules_of((one.impairment for one in wanted.impairments if one.pod == name), pod.rules, now_s)
        self._by_ip = {ip: self._pods[name] for ip, name in wanted.pods.items()}
        routes = {(route.ip, route.port): route for route in wanted.routes}
        for address in self._forwards.keys() - routes.keys():
            self._forwards.pop(address).close()
        for address, route in routes.items():
            self._forward(route.name, address).retarget(route.targets)
        return self._state()

    def counters(self, request: ReadCounters) -> dict[str, PodCounters]:
        """Return the counters of every configured pod since it was first configured."""
        return {name: pod.counters() for name, pod in self._pods.items()}

    def disturbed(self, request: ReadDisturbed) -> dict[str, int]:
        """Return how many requests or packets rules have met, for each pod."""
        return {name: pod.disturbed for name, pod in self._pods.items()}

    async def close(self) -> None:
        """Stop listening and probing."""
        self._probing.cancel()
        for forward in self._forwards.values():
            forward.close()
        self._kernel.close()

    def _forward(self, name: str, address: tuple[str, int]) -> Forward:
        if address not in self._forwards:
            self._forwards[address] = Forward(
                name,
                address,
                rng=self._rng,
                kernel=self._kernel,
                by_ip=lambda ip: self._by_ip.get(ip, self._stranger),
                by_name=lambda pod: self._pods.get(pod or "", self._stranger),
            )
        return self._forwards[address]

    def _state(self) -> RelayState:
        return RelayState(
            listening=tuple(forward.name for forward in self._forwards.values() if forward.listening),
            errors={forward.name: forward.error for forward in self._forwards.values() if forward.error},
        )

    def _link(self, name: str, now_s: float) -> Link:
        found = [(one, now_s - begun_s) for (pod, one), begun_s in self._impairments.items() if pod == name]
        return link_of(found) if found else CLEAR

    def _follow_courses(self) -> None:
        """Bring the links of pods up to date whose impairments change over time."""
        now_s = asyncio.get_running_loop().time()
        for name in {pod for pod, one in self._impairments if one.changes and pod in self._pods}:
            self._pods[name].link = self._link(name, now_s)

    async def _probe(self) -> None:
        for round_ in itertools.count():
            self._follow_courses()
            for place, forward in enumerate(self._forwards.values()):
                if not forward.listening or (place + round_) % LISTENING_PROBE_SHARE == 0:
                    forward.probe()
            await asyncio.sleep(PROBE_INTERVAL_S)


async def run(socket_path: Path, seed: int = 0) -> None:
    """Serve requests on a Unix socket until cancelled."""
    relay = Relay(seed)
    server = await serve(
        socket_path, {ConfigureRelay: relay.configure, ReadCounters: relay.counters, ReadDisturbed: relay.disturbed}
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
    socket_path
        Where to listen for requests.
    seed
        Seed of the draws that decide which packets are lost.
    parent
        Process id that must still be the parent; the present parent when None.
    """
    die_with_parent(os.getppid() if parent is None else parent)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    asyncio.run(run(Path(socket_path), seed))
