"""Mitigators: programs or agents that repair a live system, as plug-ins of the group `faultset.mitigators`.

A mitigator runs in its own thread because it may take a long time. Only the episode's thread acts on the platform; it
executes the mitigator's calls between its other duties.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field

from faultset.collector.mitigation.commands import Kubectl
from faultset.collector.mitigation.messages import CommandResult, MitigatorOrder
from faultset.core.errors import PlatformError, in_one_sentence
from faultset.core.plugins import load_plugin, require_class
from faultset.datasets.kubectl.printing import ToolAnswer, answer_ok
from faultset.datasets.kubectl.reader import answer_line
from faultset.datasets.tools.recording import ViewClock, VisibleTables
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView

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
        """Fail all calls that were not executed."""
        self._closed.set()


def run_mitigator(
    order: MitigatorOrder,
    work: Callable[[Mitigator], Mapping[str, Any]],
    queue: CallQueue,
    between: Callable[[], None],
    clock: Callable[[], int],
) -> dict[str, Any]:
    """Run a mitigator and return its record; if it fails, the record has the key `failure`.

    Parameters
    ----------
    work
        Calls the mitigator.
    between
        Called many times per second; does the episode's other work.
    clock
        Returns nanoseconds.
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
        return {"failure": f"it did not end within {order.seconds:g} s"}
    return record


LONGEST_WAIT_S = 120.0


class LiveTools(EpisodeTools):
    """The tools of a mitigator on a live system.

    Parameters
    ----------
    recorded
        Returns the view of the episode up to now.
    kubectl
        Executes commands.
    sleep
        Waits for some seconds.
    queue
        Queue of calls for the episode.

    Attributes
    ----------
    commands
        Result of each command.
    """

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
        self,
        seconds: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S, description="How long to wait.")],
    ) -> ToolAnswer:
        """Wait while the system continues to run."""
        self._sleep(seconds)
        self._update_view()
        return answer_ok(f"Waited {seconds:g} s.")

    def _update_view(self) -> None:
        view = self._recorded()
        self.clock = ViewClock(view.context)
        self.recording = VisibleTables(view, self.clock)
