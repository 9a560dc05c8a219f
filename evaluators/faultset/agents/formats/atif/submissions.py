"""Where an answer stands in a trajectory: ATIF has no place for one.

In this order: what faultset wrote itself; the call in the step that Stratus names; the last call of a tool for
submitting; the last body with a solution that a shell sent to an address `/submit`; the last message of the agent.
Agents that diagnose and then mitigate submit twice, and the second submission, often empty, only ends the mitigation:
the diagnosis is the last one that says something.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

from faultset.agents.trajectories.model import ToolCall, Trajectory

_TOOLS = ("submit", "submit_tool", "f_submit_tool")
_COMMANDS = {
    "bash": ("command",),
    "exec_command": ("cmd", "command"),
    "run_shell_command": ("command",),
    "shell": ("command",),
    "exec_shell": ("command",),
}
_BODY = re.compile(r'"solution"\s*:\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_DATA = ("-d", "--data", "--data-raw", "--data-binary", "--json")


@dataclass(frozen=True)
class SubmittedAnswer:
    """What was submitted, and by which rule it was found."""

    value: Any
    rule: str


def submitted_answer(trajectory: Trajectory) -> SubmittedAnswer | None:
    """Return the answer of a trajectory; None where the agent said nothing."""
    own = (trajectory.extra or {}).get("faultset")
    if isinstance(own, dict) and own.get("answer") is not None:
        return SubmittedAnswer(own["answer"], "written by faultset")
    steps = trajectory.agent_steps
    stratus = (trajectory.extra or {}).get("stratus")
    named = stratus.get("diagnosis_submitted_step") if isinstance(stratus, dict) else None
    for step in steps:
        calls = [call for call in step.tool_calls or () if call.function_name in _TOOLS]
        if step.step_id == named and calls:
            return SubmittedAnswer(_argument(calls[-1]), "the step that Stratus names")
    every = [call for step in steps for call in step.tool_calls or ()]
    for tool in _TOOLS:
        calls = [call for call in every if call.function_name == tool]
        if calls:
            return SubmittedAnswer(_argument(calls[-1]), f"the last call of {tool}")
    solutions = [solution for call in every if (solution := _solution(call)) is not None]
    if solutions:
        said = [solution for solution in solutions if solution.strip()]
        return SubmittedAnswer(said[-1] if said else "", "the last solution sent by a shell")
    texts = [step.text for step in steps if step.text.strip()]
    return SubmittedAnswer(texts[-1], "the last message") if texts else None


def _argument(call: ToolCall) -> Any:
    """Return the first argument of a call, which is the answer whatever it is called."""
    return next(iter(call.arguments.values()), "")


def _solution(call: ToolCall) -> str | None:
    names = _COMMANDS.get(call.function_name.lower(), ())
    command = next((call.arguments[name] for name in names if isinstance(call.arguments.get(name), str)), None)
    if not isinstance(command, str) or "/submit" not in command:
        return None
    for body in _bodies(command):
        try:
            found = json.loads(body, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("solution"), str):
            return found["solution"]
    written = _BODY.search(command)
    return written[1].replace("'\\''", "'") if written else None


def _bodies(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [after for word, after in itertools.pairwise(words) if word in _DATA]
