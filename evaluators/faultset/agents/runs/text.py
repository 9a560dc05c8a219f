"""A run as plain text: who, how it ended, and every step."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

from faultset.agents.runs.record import AgentRun
from faultset.agents.trajectories.model import Trajectory, TrajectoryStep, text_of
from faultset.core.printable import printable

_NARROWEST = 40


def trajectory_text(trajectory: Trajectory, run: AgentRun | None, *, width: int, length: int | None) -> str:
    """Return a run as text for a terminal.

    Parameters
    ----------
    run
        Its row, if there is one.
    width
        Columns of the terminal.
    length
        Characters of a message or result that are shown; None for all.
    """
    lines = [*_head(trajectory, run)]
    for step in trajectory.steps:
        lines += ["", *_step(step, length)]
    return "\n".join(_wrapped(lines, max(width, _NARROWEST))) + "\n"


def _head(trajectory: Trajectory, run: AgentRun | None) -> Iterator[str]:
    agent = trajectory.agent
    model = f" with {agent.model_name}" if agent.model_name else ""
    yield f"{agent.name} {agent.version}{model}: {len(trajectory.steps)} steps"
    if run is None:
        return
    yield f"{run.format} · {run.episode or 'no problem named'} · {run.task}"
    yield f"status: {run.status}{f' ({run.status_reason})' if run.status_reason else ''}"
    yield f"answer: {run.answer_json or 'none'}"
    tokens = f"{run.prompt_tokens or 0:,} prompt and {run.completion_tokens or 0:,} completion tokens"
    known = "tokens unknown" if run.tokens_source == "none" else f"{tokens} ({run.tokens_source})"
    yield f"{run.tool_calls} calls, {run.tool_errors} errors, {run.repeats} repeats, {known}"


def _step(step: TrajectoryStep, length: int | None) -> Iterator[str]:
    yield f"── {step.step_id} {step.source}{f' {step.timestamp}' if step.timestamp else ''} ──"
    if step.reasoning_content:
        yield from (f"  ~ {line}" for line in shortened(step.reasoning_content, length).splitlines())
    yield from (f"  {line}" for line in shortened(step.text, length).splitlines())
    for call in step.tool_calls or ():
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        yield f"  > {call.function_name} {shortened(arguments, length)}"
    for result in step.observation.results if step.observation else ():
        yield from (f"  < {line}" for line in shortened(text_of(result.content), length).splitlines())


def shortened(text: str, length: int | None) -> str:
    """Return the beginning of a text, with how much is left out."""
    if length is None or len(text) <= length:
        return text
    return f"{text[:length]}\n[{len(text) - length:,} of {len(text):,} characters more]"


def _wrapped(lines: list[str], width: int) -> Iterator[str]:
    for line in lines:
        shown = printable(line.expandtabs(4))
        indent = shown[: len(shown) - len(shown.lstrip(" <>~"))]
        yield from textwrap.wrap(
            shown, width, subsequent_indent=" " * min(len(indent), 8), drop_whitespace=False, replace_whitespace=False
        ) or [""]
