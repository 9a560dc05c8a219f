"""Offer a recorded episode through AIOpsLab's interface: text actions, for agents with `init_context` and `get_action`.

Names, arguments and results of the actions follow AIOpsLab (MIT licence); the texts are original. Exports write no
files: reading a path that an action returned queries the recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from faultset.agents.formats.aiopslab import ActionError, parse_action
from faultset.agents.interface.session import AgentSession, SessionTask
from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS, interpret_answer
from faultset.core.errors import UsageError
from faultset.core.printable import count_text
from faultset.datasets.kubectl.printing import format_folded_table, stamp

MAX_STEPS = 30
NEXT_ACTION = "Please take the next action"
ACCEPTED = "1"
_FOLDER = "/recording"
_MAX_FILE_ROWS = 400
_INSTRUCTIONS = """Act by calling functions, one per reply. Write the call in its own code block:
```
name("text argument", 5)
```
You may explain the call before the block. Only the listed functions exist."""
_SUBMISSIONS: dict[SessionTask, str] = {
    "detection": 'submit(has_anomaly: str): end with "Yes" if there is a fault, otherwise "No".',
    "localization": "submit(faulty_components: list[str]): end with the faulty services; [] if there is no fault.",
    "diagnosis": 'submit(analysis: dict): end with {"system_level": ..., "fault_type": ...}; levels are '
    f"{', '.join(SYSTEM_LEVELS)}; types are {', '.join(FAULT_TYPES)}.",
}


class AIOpsLabAgent(Protocol):
    """The interface of agents for AIOpsLab's orchestrator."""

    def init_context(self, problem_desc: str, instructions: str, apis: Mapping[str, str]) -> None:
        """Receive the problem, the instructions, and the actions with their descriptions."""
        ...

    async def get_action(self, input: str) -> str:  # noqa: A002
        """Return the next message, given the result of the previous one."""
        ...


class AIOpsLabEnvironment:
    """One session, controlled by text actions.

    Attributes
    ----------
    steps
        Number of messages from the agent so far, including unreadable ones.
    """

    def __init__(self, session: AgentSession) -> None:
        if session.task not in _SUBMISSIONS:
            raise UsageError(
                f'AIOpsLab needs one of the tasks {", ".join(_SUBMISSIONS)}, got "{session.task}"; choose one of them'
            )
        self.session = session
        self.steps = 0
        self._exports = 0
        self._actions: dict[str, Callable[..., str]] = {
            "get_logs": self._get_logs,
            "get_metrics": self._get_metrics,
            "read_metrics": self._read_metrics,
            "get_traces": self._get_traces,
            "read_traces": self._read_traces,
            "exec_shell": self._exec_shell,
            "submit": self._submit,
        }

    @property
    def description(self) -> str:
        """Return the problem description."""
        recording = self.session.tools.recording
        return (
            f"You operate the application {recording.context.app}.\nService Name: {recording.context.app}\n"
            f"Namespace: {recording.namespace}\nServices: {', '.join(self.session.candidates)}\n"
            f"{self.session.instructions.split(' End with')[0]} {self.session.situation}".rstrip()
        )

    @property
    def instructions(self) -> str:
        """Return the instructions."""
        return _INSTRUCTIONS

    @property
    def apis(self) -> dict[str, str]:
        """Return the description of each action."""
        return {
            "get_logs": "get_logs(namespace: str, service: str): the log lines of a service.",
            "get_metrics": "get_metrics(namespace: str, duration: int = 5): export the metrics of the last minutes.",
            "read_metrics": "read_metrics(file_path: str): show an exported metric.",
            "get_traces": "get_traces(namespace: str, duration: int = 5): export the spans of the last minutes.",
            "read_traces": "read_traces(file_path: str): show exported spans.",
            "exec_shell": "exec_shell(command: str): run a read-only kubectl command; no other command exists.",
            "submit": _SUBMISSIONS[self.session.task],
        }

    async def run(self, agent: AIOpsLabAgent, most_steps: int = MAX_STEPS) -> dict[str, Any]:
        """Run an agent until it answers or reaches the step limit, and return the session's report."""
        agent.init_context(self.description, self.instructions, self.apis)
        observation = NEXT_ACTION
        while self.session.answer is None and self.steps < most_steps:
            observation = f"{self.act(await agent.get_action(observation))}\n{NEXT_ACTION}"
        report = self.session.report() | {"steps": self.steps}
        return report if self.session.answer is not None else report | {"status": "step_limit"}

    def act(self, message: str) -> str:
        """Execute the action in a message and return its result."""
        self.steps += 1
        call = parse_action(message, "new")
        if isinstance(call, ActionError):
            return f"Error parsing response: {call.reason}"
        if call.name not in self._actions:
            return f"Invalid action: {call.name}"
        try:
            return self._actions[call.name](*call.args, **call.kwargs)
        except TypeError:
            return f"{call.name} was called with wrong arguments; expected {self.apis[call.name]}"

    def _call_tool(self, name: str, **arguments: Any) -> str:
        return self.session.call(name, arguments).text.rpartition("\n[")[0]

    def _get_logs(self, namespace: str, service: str) -> str:
        recording = self.session.tools.recording
        if namespace != recording.namespace or service not in recording.services:
            return "Error: Your service/namespace does not exist. Use kubectl to check."
        return self._call_tool("get_logs", service=service, limit=1000)

    def _get_metrics(self, namespace: str, duration: int = 5) -> str:
        folder = f"{_FOLDER}/metric_{self._export(duration)}"
        names = "\n".join(f"        kpi_{name}.csv" for name in self.session.tools.recording.metric_names)
        short = folder.rpartition("/")[2]
        tree = f"{short}/\n    istio/\n    container/\n{names}"
        return f"Metrics data exported to directory: {folder}\n\nFolder structure of exported metrics:\n{tree}"

    def _read_metrics(self, file_path: str) -> str:
        name = str(file_path).rpartition("/kpi_")[2].removesuffix(".csv")
        recording = self.session.tools.recording
        if not str(file_path).startswith(f"{_FOLDER}/metric_") or name not in recording.metric_names:
            return f"error: Metrics file '{str(file_path)[:200]}' not found."
        self.session.tools.counts["ok"] += 1
        samples = recording.metric([name], None, recording.clock.since_ns(self._duration_s(file_path)))
        rows = zip(samples["time"], samples["pod"], samples["labels"], samples["value"], strict=True)
        return self._table(["timestamp", "cmdb_id", "labels", "value"], [(stamp(time), *rest) for time, *rest in rows])

    def _get_traces(self, namespace: str, duration: int = 5) -> str:
        return f"Traces data exported to: {_FOLDER}/traces_{self._export(duration)}.csv"

    def _read_traces(self, file_path: str) -> str:
        if not str(file_path).startswith(f"{_FOLDER}/traces_"):
            return f"error: Traces file '{str(file_path)[:200]}' not found."
        return self._call_tool("get_spans", limit=_MAX_FILE_ROWS, since_s=self._duration_s(file_path))

    def _exec_shell(self, command: str, timeout: int = 30) -> str:
        answer = self.session.call("kubectl", {"command": str(command)})
        text = answer.text.rpartition("\n[")[0]
        return text if answer.status == "ok" else f"[ERROR] Command execution failed: {text}"

    def _submit(self, *values: Any, **keywords: Any) -> str:
        answers = [*values, *keywords.values()]
        if len(answers) != 1:
            return f"submit takes one answer: {_SUBMISSIONS[self.session.task]}"
        interpreted = interpret_answer(self.session.task, answers[0], self.session.candidates)
        if interpreted.answer is None:
            return f"Invalid answer: {interpreted.reason}. {_SUBMISSIONS[self.session.task]}"
        answer = self.session.call(self.session.submission, interpreted.answer)
        return ACCEPTED if self.session.answer is not None else answer.text

    def _export(self, minutes: float) -> str:
        self._exports += 1
        seconds = 60 * minutes if isinstance(minutes, int | float) and 0 < minutes < 1e6 else 300
        return f"{self._exports}_{round(seconds)}s"

    def _duration_s(self, path: str) -> float:
        name = str(path).removeprefix(_FOLDER).lstrip("/").partition("/")[0].removesuffix(".csv")
        digits = name.rpartition("_")[2].removesuffix("s")
        return float(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 and int(digits) else 300.0

    @staticmethod
    def _table(header: list[str], rows: list[tuple[object, ...]]) -> str:
        if not rows:
            return "No rows: the file is empty."
        text = format_folded_table(header, rows[:_MAX_FILE_ROWS])
        left_out = len(rows) - _MAX_FILE_ROWS
        return text + (f"\n# left out: {count_text(left_out, 'more row')}" if left_out > 0 else "")
