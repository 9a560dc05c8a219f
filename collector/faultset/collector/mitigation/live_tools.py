"""The tools of a recorded episode on one that goes on: reads see all up to now, and kubectl also changes things."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Annotated, Any

from pydantic import Field

from faultset.collector.mitigation.kubectl.front import Kubectl
from faultset.collector.mitigation.messages import CommandResult
from faultset.collector.mitigation.mitigators import CallQueue
from faultset.datasets.kubectl.errors import CommandError, ShellSyntaxError
from faultset.datasets.tools.clock import ViewClock
from faultset.datasets.tools.kubectl.command_line import pipeline
from faultset.datasets.tools.kubectl.emulator import kubectl
from faultset.datasets.tools.kubectl.filters import filtered
from faultset.datasets.tools.recording import Recording
from faultset.datasets.tools.tool_answers import ToolAnswer, empty, found, invalid, refused
from faultset.datasets.tools.toolset import EpisodeTools
from faultset.datasets.views import EpisodeView

LONGEST_WAIT_S = 120.0
_READS = frozenset({"get", "describe", "logs", "top", "events", "api-resources", "config", "rollout"})


class LiveTools(EpisodeTools):
    """What a mitigator may ask and do while the system runs.

    Parameters
    ----------
    recorded
        Returns the view of the episode up to now.
    front
        Carries out commands.
    sleep
        Waits, in seconds.
    queue
        Where calls wait for the episode.

    Attributes
    ----------
    commands
        What each command did.
    """

    # a call may last as long as its command, and must not keep other episodes waiting
    computing = nullcontext()

    def __init__(
        self, recorded: Callable[[], EpisodeView], front: Kubectl, sleep: Callable[[float], None], queue: CallQueue
    ):
        self._recorded, self._front, self._sleep, self._queue = recorded, front, sleep, queue
        self.commands: list[CommandResult] = []
        super().__init__(recorded())

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool in the episode's own thread; see `EpisodeTools.call`."""
        return self._queue.run(lambda: self._called_now(name, arguments))

    def _called_now(self, name: str, arguments: Mapping[str, Any] | str | None) -> ToolAnswer:
        self._look()
        return super().call(name, arguments)

    def kubectl(
        self,
        command: Annotated[
            str,
            Field(
                description="For instance: kubectl get pods -o wide | grep -v Running, or: kubectl rollout restart "
                "deployment/NAME"
            ),
        ],
    ) -> ToolAnswer:
        """Run a kubectl command on the live system: get, describe, logs, top, events read; patch, delete, scale,
        rollout, set, label, annotate, exec, wait change it or act in it. grep, head, tail, wc, sort, uniq and awk may
        follow behind pipes."""
        try:
            words, *filters = pipeline(command)
            words = words if words[:1] in (["kubectl"], ["sleep"]) else ["kubectl", *words]
            result = self._front.run(command, words)
            self.commands.append(result)
            self._look()
            if result.status == "refused" and _READS & {*words[1:2]}:
                # the recording up to now knows more flags of reading commands than the front does
                recorded = kubectl(self.recording, command)
                return recorded if recorded.status in ("ok", "empty", "absent") else _answer(result)
            answer = _answer(result)
            if answer.status != "ok" or not filters:
                return answer
            left = filtered(result.output, filters)
        except ShellSyntaxError as error:
            return refused(str(error))
        except CommandError as error:
            return invalid(f"{error}.")
        return found(left) if left.strip() else empty("no line passes the filters")

    def wait(
        self,
        seconds: Annotated[float, Field(gt=0, le=LONGEST_WAIT_S, description="How long to wait.")],
    ) -> ToolAnswer:
        """Wait while the system goes on."""
        self._sleep(seconds)
        self._look()
        return found(f"Waited {seconds:g} s.")

    def _look(self) -> None:
        view = self._recorded()
        self.clock = ViewClock(view.context)
        self.recording = Recording(view, self.clock)


def _answer(result: CommandResult) -> ToolAnswer:
    text = result.output.strip()
    if result.status == "refused":
        return refused(text.removeprefix("error: ").rstrip("."))
    if result.status == "failed":
        return ToolAnswer(status="absent", text=text) if "NotFound" in text else invalid(text)
    return found(result.output if text else "(no output)")
