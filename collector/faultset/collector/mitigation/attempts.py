"""Attempts to repair an application: execute a repair, then judge until it has succeeded or time is up.

A repair is a list of commands or a mitigator: a program or agent that repairs a live system, as a plug-in of the group
`faultset.mitigators`. A mitigator runs in its own thread because it may take a long time. Only the episode's thread
acts on the platform; it executes the mitigator's calls between its other duties.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field

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
from faultset.collector.platforms.base import Platform
from faultset.collector.platforms.journal import UndoFailed
from faultset.core.errors import PlatformError, UsageError, in_one_sentence
from faultset.core.plugins import load_plugin, require_class
from faultset.core.times import SECOND_NS
from faultset.datasets.kubectl.printing import ToolAnswer, answer_ok
from faultset.datasets.kubectl.reader import answer_line
from faultset.datasets.tools.recording import ViewClock, VisibleTables
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView

POLL_S = 1.0
SETTLE_S = 2.0
"""The window of requests ends this long before now, because later requests may be unfinished."""


class MitigationAttempt:
    """Executes repair orders in sequence until one has repaired the application."""

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


GROUP = "faultset.mitigators"
GRACE_S = 30.0
"""Grace period after a mitigator's time limit."""
_TICK_S = 0.05
T = TypeVar("T")


class Mitigator(Protocol):
    """Repairs a system with the tools of a live episode; registered as a class without arguments."""

    def mitigate(self, tools: EpisodeTools, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Repair the system, and return a record of the work as JSON.

        Parameters
        ----------
        tools
            Tools that show the recording up to now; kubectl can change the system.
        settings
            Settings of the order.
        """
        ...


def load_mitigator(name: str) -> Mitigator:
    """Return a mitigator; raise UsageError for an unknown name or a plug-in that cannot be loaded."""
    return load_plugin(GROUP, name, kind="mitigator", accept=_build)


def _build(name: str, loaded: Any) -> Mitigator:
    require_class(loaded, "mitigate")
    return loaded()


class CallQueue:
    """Queue of calls from a mitigator's thread, executed by the episode's thread."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._closed = threading.Event()

    def run(self, call: Callable[[], T]) -> T:
        """Wait until the episode has executed a call, and return its result; raise PlatformError after the end."""
        result: Future[T] = Future()
        self._calls.put((result, call))
        while True:
            try:
                return result.result(timeout=0.5)
            except TimeoutError:
                if result.done():
                    raise
                if self._closed.is_set():
                    raise PlatformError("the time limit of the repair has passed") from None

    def run_next(self, seconds: float) -> None:
        """Execute the next call if one arrives in time."""
        try:
            result, call = self._calls.get(timeout=seconds)
        except Empty:
            return
        try:
            result.set_result(call())
        except Exception as error:
            result.set_exception(error)

    def close(self) -> None:
        self._closed.set()


def run_mitigator(
    order: MitigatorOrder,
    work: Callable[[Mitigator], Mapping[str, Any]],
    queue: CallQueue,
    between: Callable[[], None],
    clock: Callable[[], int],
) -> dict[str, Any]:
    """Run a mitigator and return its record; if it fails, the record has the key `failure`.

    `work` calls the mitigator. `between` is called many times per second and does the episode's other work. `clock`
    returns nanoseconds.
    """
    mitigator = load_mitigator(order.mitigator)
    record: dict[str, Any] = {}

    def run() -> None:
        try:
            record.update(work(mitigator))
        except Exception as error:
            # the episode must continue to its undo after any exception of a mitigator
            record.update(failure=in_one_sentence(error))

    thread = threading.Thread(target=run, name="mitigator", daemon=True)
    deadline_ns = clock() + round((order.seconds + GRACE_S) * 1e9)
    thread.start()
    try:
        while thread.is_alive() and clock() < deadline_ns:
            queue.run_next(_TICK_S)
            between()
    finally:
        queue.close()
    thread.join(timeout=2 * _TICK_S)
    if thread.is_alive():
        return {"failure": f"it did not finish within {order.seconds:g} s"}
    return record


LONGEST_WAIT_S = 120.0


class LiveTools(EpisodeTools):
    """The tools of a mitigator on a live system; `recorded` returns the view of the episode up to now."""

    # a call may take as long as its command and must not block other episodes
    computing = nullcontext()

    def __init__(
        self, recorded: Callable[[], EpisodeView], kubectl: Kubectl, sleep: Callable[[float], None], queue: CallQueue
    ):
        self._recorded, self._kubectl, self._sleep, self._queue = recorded, kubectl, sleep, queue
        self.commands: list[CommandResult] = []
        super().__init__(recorded())

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool in the episode's own thread; see `EpisodeTools.call`."""
        return self._queue.run(lambda: self._call_now(name, arguments))

    def _call_now(self, name: str, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        self._update_view()
        return super().call(name, arguments)

    def kubectl(
        self,
        command: Annotated[
            str,
            Field(
                description="For example: kubectl get pods -o wide | grep -v Running, or: kubectl rollout restart "
                "deployment/NAME"
            ),
        ],
    ) -> ToolAnswer:
        """Run a kubectl command on the live system: get, describe, logs, top and events read; patch, delete, scale,
        rollout, set, label, annotate, exec and wait change it or act in it. The output may be piped to grep, head,
        tail, wc, sort, uniq and awk."""

        def carry_out(words: list[str], has_filters: bool) -> ToolAnswer:
            program = [] if words[:1] in (["kubectl"], ["sleep"]) else ["kubectl"]
            result, answer = self._kubectl.run_words(command, [*program, *words], has_filters=has_filters)
            self.commands.append(result)
            self._update_view()
            return answer if answer.text.strip() else answer_ok("(no output)")

        return answer_line(command, carry_out)

    def wait(
        self, seconds: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S, description="How long to wait.")]
    ) -> ToolAnswer:
        """Wait while the system continues to run."""
        self._sleep(seconds)
        self._update_view()
        return answer_ok(f"Waited {seconds:g} s.")

    def _update_view(self) -> None:
        view = self._recorded()
        self.clock = ViewClock(view.context)
        self.recording = VisibleTables(view, self.clock)
