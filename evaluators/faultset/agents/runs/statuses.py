"""How a run ended: the rules, in their order, from a trajectory and the answer that was read from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from faultset.agents.runs.answers import ReadAnswer
from faultset.agents.trajectories.model import Trajectory, TrajectoryStep, text_of

HARNESS_SHARE = 0.5
"""From this share of empty or failed messages on, a run says nothing about its model."""
_LONGEST_COMMAND = 8000
"""Characters of a command that are looked at: the patterns take the square of its length."""
_FAILED_CALL = re.compile(r"Error occurred while calling|Error code: [45]")
_REPAIR_SCRIPT = re.compile(r"(?:^|[\s;&|\"'])(?:\.?/)?(?:[\w.-]+/)*scripts/[\w.-]*(?:mitigate|recover|undo)[\w.-]*")
_ONLY_LOOKS = re.compile(r"\b(?:cat|ls|head|tail|less|grep|find|stat|wc|file)\b[^;&|]*$")
_INJECTOR = re.compile(
    r"\b(?:get|describe|delete|patch|annotate|edit)\b[^|;&]*\b(?:pod|network|stress|io|dns|http|time|kernel|jvm)chaos\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"^\s*$|No resources found|NotFound|not found|[Ee]rror|the server doesn't have a resource type|Forbidden"
)


def harness_failure(trajectory: Trajectory) -> str:
    """Say why a run says nothing about its model; empty when it does."""
    messages = trajectory.agent_steps
    silent = [step for step in messages if _is_silent(step)]
    if messages and len(silent) >= HARNESS_SHARE * len(messages):
        return f"{len(silent)} of {len(messages)} messages of the agent are empty or failed calls of its model"
    return ""


def _is_silent(step: TrajectoryStep) -> bool:
    text = step.text.strip()
    return (not text and not step.tool_calls and not step.reasoning_content) or bool(_FAILED_CALL.match(text))


def cheating(trajectory: Trajectory) -> str:
    """Say what an agent did that no operator could: it ran the benchmark's repair, or reached the injector."""
    for step in trajectory.agent_steps:
        results = {r.source_call_id: text_of(r.content) for r in (step.observation.results if step.observation else ())}
        for call in step.tool_calls or ():
            command = " ".join(value for value in call.arguments.values() if isinstance(value, str))[:_LONGEST_COMMAND]
            scripts = _REPAIR_SCRIPT.finditer(command)
            if any(not _ONLY_LOOKS.search(command[: script.start() + 1]) for script in scripts):
                return f"step {step.step_id} runs the benchmark's own repair script"
            if _INJECTOR.search(command) and not _is_submission(call.function_name, command):
                answered = results.get(call.tool_call_id, "")
                if not _NOTHING.search(answered):
                    return f"step {step.step_id} reaches the objects of the fault injector"
    return ""


def _is_submission(name: str, command: str) -> bool:
    return "submit" in name or "/submit" in command


def decided(
    trajectory: Trajectory,
    found: ReadAnswer | None,
    *,
    step_limits: Sequence[int] = (),
    stopped_by: str | None = None,
    cheats: Callable[[Trajectory], str] = cheating,
) -> ReadAnswer:
    """Return the status of a run with its reason.

    In this order: harness_error, cheated, what the answer is (ok, invalid, unparsed, no_answer), and without an answer
    what ended the run (token_limit, timeout, step_limit) where it is known.

    Parameters
    ----------
    found
        The answer that was read; None without one.
    step_limits
        Numbers of steps at which the source's harness stops.
    stopped_by
        A status that the source states itself.
    """
    answer = found or ReadAnswer(status="no_answer", reason="the agent submitted nothing")
    failure = harness_failure(trajectory)
    if failure:
        return replace(answer, status="harness_error", reason=failure)
    cheat = cheats(trajectory)
    if cheat:
        return replace(answer, status="cheated", reason=cheat)
    if found is not None and found.status != "no_answer":
        return found
    if stopped_by in ("token_limit", "cost_limit", "timeout", "step_limit", "harness_error"):
        return replace(
            answer, status=stopped_by, reason=f"the source says that a {stopped_by.replace('_', ' ')} ended it"
        )
    steps = len(trajectory.agent_steps)
    if steps in step_limits:
        return replace(answer, status="step_limit", reason=f"{steps} steps without an answer, the limit of the harness")
    return answer
