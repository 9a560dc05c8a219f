"""Limits of containers: CPU quotas period by period, and memory."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping

from faultset.collector.platforms.local.node.containers import Container
from faultset.collector.platforms.local.node.cpu_quotas import PERIOD_S
from faultset.collector.platforms.local.node.resource_usage import ProcessTable, cpu_ns

_MEMBERS_EVERY = 10
_MEMORY_EVERY = 10
_NEAR_LIMIT_EVERY = 2
_NEAR_LIMIT = 0.5


class Limiter:
    """Holds the limits of all containers of a node; its loop calls `run` at least every `timeout_s`.

    Parameters
    ----------
    table
        Finds the processes of containers.
    containers
        The node's containers by process group, kept current by the node.
    """

    def __init__(self, table: ProcessTable, containers: Mapping[int, Container]):
        self._table = table
        self._containers = containers
        self._period_at = self._next_at = time.monotonic() + PERIOD_S
        self._periods = 0
        self._oom_events: dict[tuple[str, str], int] = {}

    def run(self, now: float) -> None:
        """Begin a period when it is time, and look at containers that may have used up their quota."""
        if now < self._next_at:
            return
        if now >= self._period_at:
            self._begin_period(now)
        else:
            for container in self._containers.values():
                if container.quota.hot:
                    _obey(container, container.quota.check(now, container.quick_cpu_s(cpu_ns)))
        self._next_at = self._period_at
        for container in self._containers.values():
            if container.quota.hot and not container.quota.stopped:
                check_s = container.quota.next_check_s(container.quick_cpu_s(cpu_ns))
                if check_s is not None:
                    self._next_at = min(self._next_at, now + check_s)

    def timeout_s(self, now: float) -> float:
        """Return in how many seconds `run` has to be called again."""
        return self._next_at - now

    def find_members(self) -> None:
        """Find out which processes belong to which container."""
        found = self._table.members({group: container.mark for group, container in self._containers.items()})
        for group, container in self._containers.items():
            container.set_members(found[group])

    def oom_events(self, uid: str, container: str) -> int:
        """Return how often a pod's container was ended for its memory, over all its restarts."""
        return self._oom_events.get((uid, container), 0)

    def _begin_period(self, now: float) -> None:
        self._periods += 1
        self._period_at = max(self._period_at + PERIOD_S, now)
        if self._periods % _MEMBERS_EVERY == 0 or any(found.quota.stopped for found in self._containers.values()):
            self.find_members()
        for container in self._containers.values():
            _obey(container, container.quota.begin(now, container.quick_cpu_s(cpu_ns)))
        if self._periods % _NEAR_LIMIT_EVERY == 0:
            everyone = self._periods % _MEMORY_EVERY == 0
            self._check_memory(found for found in self._containers.values() if everyone or found.near_memory_limit)

    def _check_memory(self, containers: Iterable[Container]) -> None:
        for container in containers:
            limit = container.memory_limit
            if limit is None or container.oom_detail or container.exit_code is not None:
                continue
            resident = container.resident()
            container.near_memory_limit = resident > _NEAR_LIMIT * limit
            if resident > limit:
                container.oom_events += 1
                self._oom_events[container.uid, container.name] = container.oom_events
                container.oom_detail = (
                    f"Memory cgroup out of memory: Killed process {container.pid} of pod {container.pod}, "
                    f"resident:{resident >> 10}kB, limit:{limit >> 10}kB"
                )
                container.signal(signal.SIGKILL)


def _obey(container: Container, stop: bool | None) -> None:
    if stop is not None:
        container.signal(signal.SIGSTOP if stop else signal.SIGCONT)
