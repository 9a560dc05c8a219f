"""Agents and controls as solvers of Inspect.

ReAct, GPT with a shell and FLASH follow AIOpsLab, Stratus follows SREGym (both MIT licence); the prompts are original.
The controls use no model: a fixed runbook and a random guess. On a live system they restart the blamed service.
"""

from __future__ import annotations

import functools
import inspect
import json
import random
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from importlib import resources
from typing import Any

from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, execute_tools, get_model, trim_messages
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef

from faultset.agents.interface.inspect_tools import call_tool, is_answered, session_report, shown_text
from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS
from faultset.agents.runs.record import AGENT, CANDIDATES, REPORT

MAX_STEPS = 30
_STRATUS_STEPS = 20
_STRATUS_TOOLS = (
    "describe_system", "kubectl", "list_metrics", "get_metric", "get_spans", "get_trace", "service_graph", "wait",
)  # fmt: skip
_MAX_TRIMS = 5
_NO_CALL = "Your reply has no tool call. Continue with a call; when you know the answer, call {submission}."
_LAST = "This is your last reply. Answer now with a call of {submission}."
_HINT_MESSAGES, _MESSAGE_CHARACTERS, _NEWEST_CHARACTERS = 5, 300, 1000
AfterStep = Callable[[TaskState, str], Awaitable[str]]
"""Takes the state and the newest tool result, and returns a message for the model, or an empty text."""


@solver
def react(max_steps: int = MAX_STEPS) -> Solver:
    """ReAct: alternate thought and action (Yao et al. 2023, as in AIOpsLab)."""

    async def remind(state: TaskState, observation: str) -> str:
        return _read_prompts()["react_reminder"]

    return _tool_loop("react", "react", max_steps, after_step=remind)


@solver(name="gpt-w-shell")
def gpt_w_shell(max_steps: int = MAX_STEPS) -> Solver:
    """AIOpsLab's GPT-w-shell: a model with only kubectl."""
    return _tool_loop("gpt-w-shell", "gpt_w_shell", max_steps, tools=("kubectl",), one_call=True)


@solver
def flash(max_steps: int = MAX_STEPS) -> Solver:
    """FLASH: ask the model for a hint after every step (as AIOpsLab simplified it).

    AIOpsLab's agent requests the hint but discards it. Here the model receives it.
    """
    return _tool_loop("flash", "flash", max_steps, after_step=_hindsight)


@solver
def stratus(max_steps: int = _STRATUS_STEPS) -> Solver:
    """Stratus (Chen et al. 2025, as in SREGym): its diagnosis stage, or on a live system its mitigation stage."""
    return _tool_loop(
        "stratus", "stratus", max_steps, live_prompt="stratus_mitigation", tools=_STRATUS_TOOLS, one_call=True
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
        tools_by_name = {ToolDef(tool).name: tool for tool in state.tools}
        submission = next(tool for tool in tools_by_name if tool.startswith("submit_"))
        system = live_prompt if live_prompt and submission == "submit_mitigation" else prompt
        state.messages.insert(0, ChatMessageSystem(content=_read_prompts()[system]))
        usable = [tool for key, tool in tools_by_name.items() if tools is None or key in {*tools, submission}]
        for step in range(max_steps):
            if step == max_steps - 1:
                state.messages.append(ChatMessageUser(content=_LAST.format(submission=submission)))
                usable = [tools_by_name[submission]]
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
    for _ in range(_MAX_TRIMS):
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
    prompt = [ChatMessageSystem(content=_read_prompts()["flash_hindsight"]), ChatMessageUser(content=question)]
    hint = (await get_model().generate(prompt)).completion[:_NEWEST_CHARACTERS]
    return f"Hint: {hint}" if hint.strip() else ""


@functools.cache
def _read_prompts() -> dict[str, str]:
    return tomllib.loads(resources.files("faultset.agents").joinpath("prompts.toml").read_text("utf-8"))


_NOT_READY, _WARNING, _FAILED_CALLS, _LOUD_LOGS = 1000.0, 100.0, 10.0, 1.0
"""Weights of the symptoms that the runbook looks for."""
_MIN_ERROR_SHARE = 1.0
"""Smallest percentage of failed calls for which the called service is blamed."""
_CALL_LINE = re.compile(r"^(\S+)\s+(\S+)\s+[\d.,]+\s+([\d.]+) %", re.MULTILINE)


@solver(name="random-agent")
def random_agent(seed: int = 0) -> Solver:
    """Answer with a random candidate, level and type; for detection, report a fault half of the time."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(AGENT, {"name": "random-agent", "version": "2", "kind": "control"})
        chance = random.Random(f"{seed}/{state.sample_id}/{state.epoch}")
        services = list(_get_candidates(state))
        chance.shuffle(services)
        level, fault_type = chance.choice(SYSTEM_LEVELS), chance.choice(FAULT_TYPES)
        if _find_submission(state) == "submit_detection" and chance.random() < 0.5:
            services = []
        return await _submit(state, services, level, fault_type)

    return solve


@solver
def scripted() -> Solver:
    """Follow a fixed runbook and blame the service with the worst symptoms.

    In this order: pods that are not ready, warning events, failed calls, error logs.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.store.set(AGENT, {"name": "scripted", "version": "2", "kind": "control"})
        candidates = _get_candidates(state)
        suspicion: defaultdict[str, float] = defaultdict(float)
        for service, status in _parse_states(await call_tool(state, "list_objects", {"kind": "Pod"})):
            if not status.get("ready") or any(
                container.get("restartCount") for container in status.get("containers") or ()
            ):
                suspicion[service] += _NOT_READY
        for service, status in _parse_states(await call_tool(state, "list_objects", {"kind": "Deployment"})):
            if status.get("readyReplicas") != status.get("replicas") or status.get("replicas") == 0:
                suspicion[service] += _NOT_READY
        warnings = await call_tool(state, "list_events", {"type": "Warning"})
        for service, count in _count_named_services(warnings, candidates).items():
            suspicion[service] += _WARNING * min(count, 5)
        for service, share in _find_failing_services(await call_tool(state, "service_graph")).items():
            if service in candidates:
                suspicion[service] += _FAILED_CALLS * share / 100
        logs = await call_tool(state, "get_logs", {"level": "error", "limit": 200})
        for service, count in _count_named_services(logs, candidates).items():
            suspicion[service] += _LOUD_LOGS * min(count / 200, 1.0)
        services = [name for name, _ in sorted(suspicion.items(), key=lambda item: (-item[1], item[0]))]
        return await _submit(state, services, *_guess_kind(logs, warnings, suspicion))

    return solve


def _get_candidates(state: TaskState) -> tuple[str, ...]:
    return tuple(state.metadata[CANDIDATES])


def _find_submission(state: TaskState) -> str:
    return next(name for tool in state.tools if (name := ToolDef(tool).name).startswith("submit_"))


async def _submit(state: TaskState, services: list[str], level: str | None, fault_type: str | None) -> TaskState:
    """Submit the answer in the format of the task."""
    answers: dict[str, dict[str, Any]] = {
        "submit_detection": {"fault": bool(services)},
        "submit_localization": {"services": services},
        "submit_rca": {"system_level": level, "fault_type": fault_type},
    }
    submission = _find_submission(state)
    if submission == "submit_mitigation":
        await _repair(state, services)
        answers[submission] = {"summary": f"blamed {services[0]}" if services else "blamed nothing"}
    await call_tool(state, submission, answers[submission])
    return state


async def _repair(state: TaskState, services: list[str]) -> None:
    """Restart the first service, or scale it up if it was scaled to zero."""
    for name in services[:1]:
        question = f"kubectl get deployment {name} -o jsonpath='{{.spec.replicas}}'"
        lines = (await call_tool(state, "kubectl", {"command": question})).splitlines()
        stopped = bool(lines) and lines[0].strip() == "0"
        action = f"scale deployment/{name} --replicas 1" if stopped else f"rollout restart deployment/{name}"
        await call_tool(state, "kubectl", {"command": f"kubectl {action}"})


def _parse_states(table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (service, state) for each line of an object list."""
    states = []
    for line in table.splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[2].startswith("{"):
            try:
                states.append((parts[1], json.loads(parts[2])))
            except ValueError:
                # a truncated result ends within a state
                continue
    return states


def _count_named_services(text: str, candidates: tuple[str, ...]) -> Counter[str]:
    """Count, for each service, the lines whose first pod belongs to it."""
    pods = re.compile(
        rf"(?:^|[\s/])({'|'.join(map(re.escape, sorted(candidates, key=len, reverse=True)))})-[a-z0-9]+-[a-z0-9]+\b"
    )
    return Counter(match[1] for line in text.splitlines() if (match := pods.search(line)))


def _find_failing_services(graph: str) -> dict[str, float]:
    """Return the failing services that call no other failing service, with their share of failed calls."""
    shares: dict[str, float] = {}
    callers: dict[str, set[str]] = {}
    for caller, callee, share in _CALL_LINE.findall(graph):
        callers.setdefault(callee, set()).add(caller)
        shares[callee] = max(shares.get(callee, 0.0), float(share))
    failing = {name for name, share in shares.items() if share >= _MIN_ERROR_SHARE}
    affected_callers = {caller for callee in failing for caller in callers[callee]}
    return {name: shares[name] for name in failing - affected_callers}


def _guess_kind(logs: str, warnings: str, suspicion: Mapping[str, float]) -> tuple[str | None, str | None]:
    """Guess the level and the type from words in logs and events."""
    if not suspicion:
        return None, None
    if re.search(r"not authorized|authentication|no permissions|password", logs, re.IGNORECASE):
        return "application", "authentication issue"
    if re.search(r"FailedScheduling|ProvisioningFailed|BackOff", warnings):
        return "virtualization", "operation error"
    return "virtualization", "misconfiguration"


_AGENTS = {"react": react, "gpt-w-shell": gpt_w_shell, "flash": flash, "stratus": stratus}
_CONTROLS = {"random-agent": random_agent, "scripted": scripted}


def agent_records() -> list[dict[str, Any]]:
    """Return the name, kind, need for a model, and title of each solver."""
    return [
        {"name": name, "kind": kind, "model": model, "title": (inspect.getdoc(solver) or "").partition("\n")[0]}
        for kind, model, solvers in (("agent", "needed", _AGENTS), ("control", "none", _CONTROLS))
        for name, solver in solvers.items()
    ]
