"""Attempts to repair an application: execute a repair, then judge until it has succeeded or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from faultset.collector.mitigation.commands import Kubectl
from faultset.collector.mitigation.judge import DesiredState, HealthyState, LiveFault, RepairJudge
from faultset.collector.mitigation.live_state import KubectlSession, LiveState
from faultset.collector.mitigation.messages import (
    CommandResult,
    MitigationResult,
    MitigatorOrder,
    RepairCheckResult,
    RepairOrder,
)
from faultset.collector.mitigation.mitigators import CallQueue, LiveTools, run_mitigator
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.journal import UndoFailed
from faultset.core.errors import UsageError
from faultset.core.times import SECOND_NS

POLL_S = 1.0
SETTLE_S = 2.0
"""The window of requests ends this long before now, because later requests may be unfinished."""


class MitigationAttempt:
    """Executes repair orders in sequence until one has repaired the application.

    Parameters
    ----------
    orders
        The repairs and their time limits.
    platform
        The application's platform.
    """

    def __init__(self, orders: Sequence[RepairOrder], platform: Platform):
        self._orders, self._platform = tuple(orders), platform
        self._healthy: HealthyState | None = None

    def note_healthy(self) -> None:
        """Record the application's state; called just before the injection."""
        self._healthy = HealthyState.of(self._platform)

    def run(self, live: LiveFault) -> tuple[MitigationResult, ...]:
        """Try each order until one leaves the application healthy for long enough; return all results."""
        results: list[MitigationResult] = []
        for order in self._orders:
            result = self._carry_out(order, live)
            results.append(replace(result, after=tuple(earlier.repair for earlier in results)))
            if result.success:
                break
        return tuple(results)

    def _carry_out(self, order: RepairOrder, live: LiveFault) -> MitigationResult:
        assert self._healthy is not None, "the healthy state is noted before the injection"
        judge = RepairJudge(
            self._platform,
            live.fault,
            live.target,
            live.parameters,
            before=live.before,
            healthy=self._healthy,
            unhealthy_requests=live.unhealthy_requests,
        )
        start_ns = live.clock()
        watch = _Watch(judge, live, order.sustain_s)
        if order.mitigator is not None:
            commands, record = self._run_mitigator(order, order.mitigator, live, watch)
            # the time limit starts after the mitigator has finished
            deadline_start_ns = live.clock()
        else:
            commands, record, deadline_start_ns = self._repair(order, live), None, start_ns
            watch.begin()
        healthy_ns = watch.wait_until_healthy(deadline_start_ns + round(order.within_s * SECOND_NS))
        return MitigationResult(
            repair=order.name,
            success=healthy_ns is not None,
            parts=watch.parts,
            commands=commands,
            manifest=live.manifest,
            mitigated_s=None if healthy_ns is None else _to_seconds(healthy_ns - live.onset_ns),
            repair_s=None if healthy_ns is None else _to_seconds(healthy_ns - start_ns),
            mitigator=record,
        )

    def check_restored(self) -> None:
        """Raise UndoFailed unless every object has the specification from before the injection."""
        if self._healthy is None:
            return
        current = DesiredState.of(self._platform)
        missing = [f"{kind} {name} is missing" for kind, name in self._healthy.desired.missing_in(current)]
        problems = [*missing, *self._healthy.desired.changes_to(current)]
        if problems:
            raise UndoFailed(f"the undo is incomplete: {'; '.join(problems[:3])}")

    def _repair(self, order: RepairOrder, live: LiveFault) -> tuple[CommandResult, ...]:
        if order.undoes:
            live.undo()
            return ()
        kubectl = Kubectl(self._session(live, live.sleep, folder=order.folder, by_owner=True))
        return tuple(kubectl.run(line) for line in order.commands)

    def _run_mitigator(
        self, order: RepairOrder, mitigator_order: MitigatorOrder, live: LiveFault, watch: _Watch
    ) -> tuple[tuple[CommandResult, ...], dict[str, Any]]:
        """Run a mitigator while monitoring the application."""
        queue = CallQueue()

        def sleep(seconds: float) -> None:
            end_ns = live.clock() + round(seconds * SECOND_NS)
            while (left_s := (end_ns - live.clock()) / SECOND_NS) > 0:
                live.sleep(min(POLL_S, left_s))
                watch.update()

        def update_between_calls() -> None:
            live.sleep(0.0)
            watch.update()

        tools = LiveTools(live.recorded, Kubectl(self._session(live, sleep, folder=order.folder)), sleep, queue)
        watch.begin()
        record = run_mitigator(
            mitigator_order,
            lambda mitigator: mitigator.mitigate(tools, mitigator_order.settings),
            queue,
            update_between_calls,
            live.clock,
        )
        if "failure" in record:
            # a broken mitigator would fail again, so this does not count as a failed repair
            raise UsageError(f"{order.name} failed: {record['failure']}; correct the mitigator")
        return tuple(tools.commands), record

    def _session(
        self, live: LiveFault, sleep: Callable[[float], None], *, folder: Path | None, by_owner: bool = False
    ) -> KubectlSession:
        namespaces = {self._platform.app.name}
        for deployment in self._platform.list("Deployment"):
            namespaces.add(deployment["metadata"].get("namespace") or self._platform.app.name)
        assert self._healthy is not None
        return KubectlSession(
            state=LiveState(self._platform, frozenset(namespaces), live.clock, by_owner=by_owner),
            original_objects=frozenset(self._healthy.desired.objects),
            folder=folder,
            sleep=sleep,
        )


class _Watch:
    """Waits until an application has been healthy for long enough."""

    def __init__(self, judge: RepairJudge, live: LiveFault, sustain_s: float):
        self._judge, self._live, self._sustain_ns = judge, live, round(sustain_s * SECOND_NS)
        self.parts: tuple[RepairCheckResult, ...] = ()
        self._start_ns = self._next_ns = 0
        self._healthy_ns: int | None = None

    def begin(self) -> None:
        """Start a new window."""
        self._judge.begin_window()
        self._start_ns = self._live.clock()
        self._next_ns = self._start_ns + round(POLL_S * SECOND_NS)

    def update(self) -> None:
        """Run the judge's checks, at most once per second."""
        now_ns = self._live.clock()
        if now_ns < self._next_ns:
            return
        self._next_ns = now_ns + round(POLL_S * SECOND_NS)
        end_ns = now_ns - round(SETTLE_S * SECOND_NS)
        self.parts = self._judge.read(min(self._start_ns, end_ns - SECOND_NS), end_ns)
        problems = {check.part for check in self.parts if not check.ok}
        self._healthy_ns = self._start_ns if not problems and end_ns - self._start_ns >= self._sustain_ns else None
        if problems:
            self._judge.begin_window()
            # requests are known up to the end of the window, everything else up to now
            self._start_ns = max(self._start_ns, end_ns) if problems == {"requests"} else now_ns

    def wait_until_healthy(self, deadline_ns: int) -> int | None:
        """Return the time since which the application has been healthy for long enough; None after the deadline."""
        while True:
            self._live.sleep(POLL_S)
            self.update()
            if self._healthy_ns is not None or self._start_ns > deadline_ns:
                return self._healthy_ns


def _to_seconds(length_ns: int) -> float:
    return round(length_ns / SECOND_NS, 3)
