"""Trajectory files in ATIF, and the rules that find the answer in them, since ATIF has no field for it.

The rules in order: the answer written by faultset; the call in the step named by Stratus; the last call of a submit
tool; the last non-empty solution that a shell command sent to `/submit`; the agent's last message. Agents that diagnose
and then mitigate submit twice; the second submission is often empty, so empty solutions are skipped.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from faultset.agents.formats.contract import ImportedRun, ImportOptions, SourceScore, files_below, get_data_suffix
from faultset.agents.runs.answers import ReadAnswer, build_run, decide_status, from_text, interpret_answer
from faultset.agents.runs.record import STATUSES, TASKS, AgentRun, RunTruth
from faultset.agents.trajectory import AgentIdentity, ToolCall, Trajectory, read_trajectory

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
_WRITTEN = "written by faultset"


@dataclass(frozen=True)
class SubmittedAnswer:
    """A submitted answer, and the rule that found it."""

    value: Any
    rule: str


def find_submitted_answer(trajectory: Trajectory) -> SubmittedAnswer | None:
    """Return the answer of a trajectory; None if there is none."""
    extra = (trajectory.extra or {}).get("faultset")
    if isinstance(extra, dict) and extra.get("answer") is not None:
        return SubmittedAnswer(extra["answer"], _WRITTEN)
    steps = trajectory.agent_steps
    stratus = (trajectory.extra or {}).get("stratus")
    named_step = stratus.get("diagnosis_submitted_step") if isinstance(stratus, dict) else None
    for step in steps:
        calls = [call for call in step.tool_calls or () if call.function_name in _TOOLS]
        if step.step_id == named_step and calls:
            return SubmittedAnswer(_get_first_argument(calls[-1]), "the step named by Stratus")
    all_calls = [call for step in steps for call in step.tool_calls or ()]
    for tool in _TOOLS:
        calls = [call for call in all_calls if call.function_name == tool]
        if calls:
            return SubmittedAnswer(_get_first_argument(calls[-1]), f"the last call of {tool}")
    solutions = [solution for call in all_calls if (solution := _find_solution(call)) is not None]
    if solutions:
        nonempty = [solution for solution in solutions if solution.strip()]
        return SubmittedAnswer(nonempty[-1] if nonempty else "", "the last solution sent by a shell")
    texts = [step.text for step in steps if step.text.strip()]
    return SubmittedAnswer(texts[-1], "the last message") if texts else None


def _get_first_argument(call: ToolCall) -> Any:
    """Return the first argument of a call, whose name differs between tools."""
    return next(iter(call.arguments.values()), "")


def _find_solution(call: ToolCall) -> str | None:
    names = _COMMANDS.get(call.function_name.lower(), ())
    command = next((call.arguments[name] for name in names if isinstance(call.arguments.get(name), str)), None)
    if not isinstance(command, str) or "/submit" not in command:
        return None
    for body in _list_bodies(command):
        try:
            content = json.loads(body, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(content, dict) and isinstance(content.get("solution"), str):
            return content["solution"]
    body_match = _BODY.search(command)
    return body_match[1].replace("'\\''", "'") if body_match else None


def _list_bodies(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [after for word, after in itertools.pairwise(words) if word in _DATA]


_STRUCTURED_TASKS = ("detection", "localization", "diagnosis", "mitigation")


class ATIFTrajectories:
    """Trajectory files in ATIF 1.0 to 1.8; they have no labels, so nothing is scored."""

    name = "atif"
    title = "ATIF"

    def files(self, path: Path) -> Sequence[Path]:
        """Return the files with "trajectory" in their name, or all JSON files if there are none."""
        files = files_below(path, lambda file: get_data_suffix(file) == ".json", "a folder of ATIF files")
        return [file for file in files if "trajectory" in file.name] or files

    def runs(self, file: Path, options: ImportOptions) -> Sequence[ImportedRun]:
        """Read one trajectory."""
        trajectory = _add_model_name(read_trajectory(file), options)
        extra = (trajectory.extra or {}).get("faultset")
        recorded = extra if isinstance(extra, dict) else {}
        task = recorded["task"] if recorded.get("task") in TASKS else "root_cause"
        submitted = find_submitted_answer(trajectory)
        answer = _apply_recorded_status(decide_status(trajectory, _answer(submitted, str(task), options)), recorded)
        times = _list_times(trajectory)
        run = build_run(
            self.name,
            trajectory,
            answer,
            dataset=_get_text(recorded, "dataset"),
            version=_get_text(recorded, "dataset_version"),
            episode=_get_text(recorded, "episode") or (trajectory.session_id or "")[:500] or None,
            task=task,
            protocol=_get_text(recorded, "protocol"),
            seed=_get_seed(recorded),
            stop_reason=submitted.rule if submitted else None,
            model_calls=_count_model_calls(trajectory),
            started_ns=int(times[0].timestamp() * 1e9) if times else None,
            seconds=max((times[-1] - times[0]).total_seconds(), 0.0) if times else None,
        )
        truth = RunTruth(cluster=(run.episode or file.stem)[:500])
        return [ImportedRun(key="", trajectory=trajectory, run=run, truth=truth)]

    def score(self, run: AgentRun, truth: Mapping[str, Any]) -> SourceScore | None:
        """Return None, because the format has no labels."""
        return None

    def difference(self, run: AgentRun, truth: RunTruth, success: bool) -> str:
        """Return an empty text, because the format has no results."""
        return ""


def _add_model_name(trajectory: Trajectory, options: ImportOptions) -> Trajectory:
    agent = trajectory.agent
    model = agent.model_name or options.model
    if model == agent.model_name:
        return trajectory
    return trajectory.model_copy(update={"agent": AgentIdentity(**{**dict(agent), "model_name": model})})


def _answer(submitted: SubmittedAnswer | None, task: str, options: ImportOptions) -> ReadAnswer | None:
    if submitted is None:
        return None
    if submitted.rule == _WRITTEN and isinstance(submitted.value, dict):
        return ReadAnswer(status="ok", answer=submitted.value)
    if task in _STRUCTURED_TASKS:
        return interpret_answer(task, submitted.value, options.candidates)
    return from_text(submitted.value if isinstance(submitted.value, str) else str(submitted.value), options.candidates)


def _apply_recorded_status(answer: ReadAnswer, recorded: Mapping[str, Any]) -> ReadAnswer:
    """Keep the status that faultset recorded with the run."""
    for status in STATUSES:
        if recorded.get("status") == status and (status != "ok" or answer.answer is not None):
            reason = answer.reason if answer.status == status else "recorded by faultset"
            return replace(answer, status=status, reason=reason)
    return answer


def _get_text(recorded: Mapping[str, Any], name: str) -> str | None:
    value = recorded.get(name)
    return value[:500] if isinstance(value, str) else None


def _get_seed(recorded: Mapping[str, Any]) -> int | None:
    value = recorded.get("seed")
    return value if type(value) is int and abs(value) < 2**63 else None


def _list_times(trajectory: Trajectory) -> list[datetime]:
    times = []
    for step in trajectory.steps:
        try:
            time = datetime.fromisoformat(step.timestamp) if step.timestamp else None
        except ValueError:
            continue
        if time is not None and time.tzinfo is not None and 1971 <= time.year <= 2200:
            times.append(time)
    return sorted(times)


def _count_model_calls(trajectory: Trajectory) -> int:
    counts = [1 if step.llm_call_count is None else step.llm_call_count for step in trajectory.agent_steps]
    return min(sum(counts), 2**63 - 1)
