"""The cluster model with a clock of its own and a node on which everything happens at once; nothing runs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from faultset.collector.platforms.local.controllers.cluster import Cluster
from faultset.collector.platforms.local.controllers.commands import (
    Command,
    ContainerExited,
    ProbeContainer,
    ProbeResult,
    Report,
    SignalContainer,
    StartContainer,
    Started,
    StartFailed,
)
from faultset.collector.spec.containers import PAUSE_REPOSITORY
from faultset.core.times import SECOND_NS

_MOST_ROUNDS = 1000


class SimulatedCluster:
    """Drives a `Cluster`: containers start, answer probes and end as soon as they are asked to.

    Parameters
    ----------
    now_ns
        The time at first; it moves by `advance` only.

    Attributes
    ----------
    missing_programs, ignores_term
        Programs that cannot be started, and pods whose containers ignore SIGTERM.
    """

    def __init__(
        self,
        *,
        now_ns: int,
        namespace: str,
        label_key: str,
        seed: int = 7,
        back_off_factor: float = 1.0,
        allocatable: Mapping[str, str] | None = None,
    ):
        self.now_ns = now_ns
        self.running: dict[tuple[str, str], StartContainer] = {}
        self.missing_programs: set[str] = set()
        self.ignores_term: set[str] = set()
        self._services, self._pods = itertools.count(1), itertools.count(1)
        self.cluster = Cluster(
            clock=self.time_ns,
            seed=seed,
            namespace=namespace,
            label_key=label_key,
            service_address=self._service_address,
            pod_address=self._pod_address,
            back_off_factor=back_off_factor,
            allocatable=allocatable,
        )
        self.store = self.cluster.store
        self.settle()

    def time_ns(self) -> int:
        """Return the simulated time."""
        return self.now_ns

    def settle(self) -> None:
        """Let the controllers act until nothing is left to do at this time."""
        for _ in range(_MOST_ROUNDS):
            if not self.cluster.due:
                return
            for command in self.cluster.reconcile():
                self._perform(command)
        raise AssertionError(f"the controllers still act after {_MOST_ROUNDS} rounds")

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + round(seconds * SECOND_NS)
        while (due_ns := self.cluster.context.due_ns) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.settle()
        self.now_ns = end_ns
        self.settle()

    def end(self, *pods: str, code: int = 2, out_of_memory: bool = False) -> None:
        """Have the containers of pods end by themselves."""
        for key, started in [*self.running.items()]:
            if started.pod in pods:
                self._end(key, code, out_of_memory=out_of_memory)
        self.settle()

    def _perform(self, command: Command) -> None:
        report: Report | None = None
        match command:
            case StartContainer():
                report = self._start(command)
            case ProbeContainer():
                report = self._probe(command)
            case SignalContainer():
                key = (command.uid, command.container)
                started = self.running.get(key)
                if started and (command.signal == "KILL" or started.pod not in self.ignores_term):
                    self._end(key, 137 if command.signal == "KILL" else 0)
            case _:
                pass
        if report is not None:
            self.cluster.handle(report)

    def _start(self, command: StartContainer) -> Report:
        about: dict[str, Any] = {
            "uid": command.uid,
            "container": command.container,
            "attempt": command.attempt,
            "time_ns": self.now_ns,
        }
        program = command.command[0] if command.command else ""
        if program in self.missing_programs:
            return StartFailed(**about, message=f'exec: "{program}": executable file not found')
        self.running[command.uid, command.container] = command
        return Started(**about)

    def _probe(self, probe: ProbeContainer) -> Report:
        started = self.running.get((probe.uid, probe.container))
        is_silent = started is None or started.image.rpartition(":")[0] == PAUSE_REPOSITORY
        return ProbeResult(
            uid=probe.uid,
            container=probe.container,
            attempt=probe.attempt,
            purpose=probe.purpose,
            time_ns=self.now_ns,
            failure=f"dial tcp {probe.address}:{probe.port}: connect: connection refused" if is_silent else "",
        )

    def _end(self, key: tuple[str, str], code: int, *, out_of_memory: bool = False) -> None:
        started = self.running.pop(key)
        report = ContainerExited(
            uid=started.uid,
            container=started.container,
            attempt=started.attempt,
            time_ns=self.now_ns,
            exit_code=code,
            out_of_memory=out_of_memory,
            detail=f"Killed process of pod {started.pod}" if out_of_memory else "",
        )
        self.cluster.handle(report)

    def _service_address(self) -> str:
        return f"127.9.0.{next(self._services)}"

    def _pod_address(self) -> str:
        return f"127.9.1.{next(self._pods)}"
