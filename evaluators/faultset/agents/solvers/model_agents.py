"""ReAct, GPT with a shell, FLASH and Stratus as Inspect solvers, with original prompts.

Sources: AIOpsLab (MIT licence) for the first three, SREGym (MIT licence) for Stratus.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Sequence
from importlib import resources
from typing import Any

from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, execute_tools, get_model, trim_messages
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef

from faultset.agents.interface.inspect_tools import is_answered, session_report, shown_text
from faultset.agents.runs.record import AGENT, REPORT
from faultset.agents.solvers import controls

MAX_STEPS = 30
_STRATUS_STEPS = 20
_STRATUS_TOOLS = (
    "describe_system", "kubectl", "list_metrics", "get_metric", "get_spans", "get_trace", "service_graph", "wait",
)  # fmt: skip
_TRIMS = 5
_NO_CALL = "Your reply has no tool call. Continue with a call; when you know the answer, call {submission}."
_LAST = "This is your last reply. Answer now with a call of {submission}."
_HINT_MESSAGES, _MESSAGE_CHARACTERS, _NEWEST_CHARACTERS = 5, 300, 1000
AfterStep = Callable[[TaskState, str], Awaitable[str]]
"""Takes the state and the newest tool result, and returns a message for the model; empty for none."""


@solver
def react(max_steps: int = MAX_STEPS) -> Solver:
    """ReAct: alternate thought and action (Yao et al. 2023, as in AIOpsLab)."""

    async def remind(state: TaskState, observation: str) -> str:
        return _prompt("react_reminder.md")

    return _tool_loop("react", "react.md", max_steps, after_step=remind)


@solver(name="gpt-w-shell")
def gpt_w_shell(max_steps: int = MAX_STEPS) -> Solver:
    """AIOpsLab's GPT-w-shell: a model with only kubectl."""
    return _tool_loop("gpt-w-shell", "gpt_w_shell.md", max_steps, tools=("kubectl",), one_call=True)


@solver
def flash(max_steps: int = MAX_STEPS) -> Solver:
    """FLASH: ask the model for a hint after every step (as AIOpsLab simplified it).

    AIOpsLab's agent requests the hint but discards it. Here the model receives it.
    """
    return _tool_loop("flash", "flash.md", max_steps, after_step=_hindsight)


@solver
def stratus(max_steps: int = _STRATUS_STEPS) -> Solver:
    """Stratus (Chen et al. 2025, as in SREGym): its diagnosis stage, or on a live system its mitigation stage."""
    return _tool_loop(
        "stratus", "stratus.md", max_steps, live_prompt="stratus_mitigation.md", tools=_STRATUS_TOOLS, one_call=True
    )


def _tool_loop(
    name: str,
    prompt: str,
    max_steps: int,
    *,
    live_prompt: str | None = None,
    tools: Collection[str] | None = None,
    one_call: bool = False,
    after_step: AfterStep | None = None,
) -> Solver:
    """Return a solver that calls tools until the session has an answer or no step is left.

    Parameters
    ----------
    max_steps
        Replies of the model; the last one may only submit.
    live_prompt
        System prompt for repairing a live system; `prompt` by default.
    tools
        Tools to use in addition to the submission; all by default.
    one_call
        Whether only the first call of a reply is executed.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(AGENT, {"name": name, "version": "3", "kind": "agent"})
        named = {ToolDef(tool).name: tool for tool in state.tools}
        submission = next(tool for tool in named if tool.startswith("submit_"))
        system = live_prompt if live_prompt and submission == "submit_mitigation" else prompt
        state.messages.insert(0, ChatMessageSystem(content=_prompt(system)))
        usable = [tool for key, tool in named.items() if tools is None or key in {*tools, submission}]
        for step in range(max_steps):
            if step == max_steps - 1:
                state.messages.append(ChatMessageUser(content=_LAST.format(submission=submission)))
                usable = [named[submission]]
            observation = await _take_step(state, usable, one_call)
            if is_answered(state):
                return state
            if observation is None:
                state.messages.append(ChatMessageUser(content=_NO_CALL.format(submission=submission)))
            elif after_step is not None and (message := await after_step(state, observation)):
                state.messages.append(ChatMessageUser(content=message))
        state.store.set(REPORT, {**session_report(state.store), "stopped_by": "step_limit"})
        return state

    return solve


async def _take_step(state: TaskState, tools: Sequence[Tool], one_call: bool) -> str | None:
    """Ask the model once, execute its calls, and return the last result; None if it made no call."""
    state.output = await _generate(state, tools)
    message = state.output.message
    if message.tool_calls and one_call:
        message.tool_calls = message.tool_calls[:1]
    state.messages.append(message)
    if not message.tool_calls:
        return None
    results, _ = await execute_tools(state.messages, tools)
    state.messages.extend(results)
    return shown_text(results[-1]) if results else ""


async def _generate(state: TaskState, tools: Sequence[Tool]) -> ModelOutput:
    """Ask the model; if the conversation exceeds its context, drop the oldest messages and ask again."""
    output = await get_model().generate(state.messages, list(tools))
    for _ in range(_TRIMS):
        if output.stop_reason != "model_length":
            break
        trimmed = await trim_messages(state.messages)
        if len(trimmed) == len(state.messages):
            break
        state.messages = trimmed
        output = await get_model().generate(state.messages, list(tools))
    return output


async def _hindsight(state: TaskState, observation: str) -> str:
    messages = state.messages[2:][-_HINT_MESSAGES:]
    recent = [f"{message.role}: {shown_text(message)[:_MESSAGE_CHARACTERS]}" for message in messages]
    excerpt = "\n".join([*recent, f"Newest observation: {observation[:_NEWEST_CHARACTERS]}"])
    question = f"{state.input_text}\n\nThe end of the conversation:\n{excerpt}"
    prompt = [ChatMessageSystem(content=_prompt("flash_hindsight.md")), ChatMessageUser(content=question)]
    hint = (await get_model().generate(prompt)).completion[:_NEWEST_CHARACTERS]
    return f"Hint: {hint}" if hint.strip() else ""


def _prompt(name: str) -> str:
    return resources.files("faultset.agents.solvers").joinpath("prompts", name).read_text("utf-8").strip()


_AGENTS = {
    "react": react,
    "gpt-w-shell": gpt_w_shell,
    "flash": flash,
    "stratus": stratus,
}
_CONTROLS = {"random-agent": controls.random_agent, "scripted": controls.scripted}


def agent_records() -> list[dict[str, Any]]:
    """Return the name, the kind, whether a model is needed, and the title of each solver."""
    return [
        {"name": name, "kind": kind, "model": model, "title": (inspect.getdoc(solver) or "").partition("\n")[0]}
        for kind, model, solvers in (("agent", "needed", _AGENTS), ("control", "none", _CONTROLS))
        for name, solver in solvers.items()
    ]
