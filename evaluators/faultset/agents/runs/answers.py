"""Interpret answers of agents, decide how runs ended, and count their usage."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from faultset.agents.runs.record import AgentRun, Status
from faultset.agents.trajectory import Trajectory, TrajectoryStep, jsonable, text_of
from faultset.core.files import canonical_json

SYSTEM_LEVELS = ("hardware", "operating system", "virtualization", "application")
FAULT_TYPES = (
    "misconfiguration", "code defect", "authentication issue", "network/storage issue", "operation error",
    "dependency problem",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadAnswer:
    """An agent's answer as interpreted."""

    status: Status
    reason: str = ""
    answer: dict[str, Any] | None = None


def interpret_answer(task: str, value: Any, candidates: Sequence[str] = ()) -> ReadAnswer:
    """Interpret a submitted value as an answer to a task.

    Parameters
    ----------
    task
        Detection, localization, diagnosis or mitigation.
    value
        The submitted Python value.
    candidates
        Services that may be named; empty for any.
    """
    if task == "detection":
        word = value.strip().lower() if isinstance(value, str) else ""
        if word in ("yes", "no"):
            return ReadAnswer(status="ok", answer={"fault": word == "yes"})
        return ReadAnswer(status="invalid", reason="the answer is neither Yes nor No")
    if task == "localization":
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return ReadAnswer(status="invalid", reason="the answer is not a list of service names")
        answer = {"services": list(names), "ordered": False}
        unknown = [name for name in names if candidates and name not in candidates]
        if unknown:
            reason = f"{len(unknown)} of {len(names)} names are not candidates"
            return ReadAnswer(status="invalid", reason=reason, answer=answer)
        return ReadAnswer(status="ok", answer=answer)
    if task == "diagnosis":
        parts = {key: value.get(key) for key in ("system_level", "fault_type")} if isinstance(value, dict) else {}
        if not parts or not all(isinstance(part, str) for part in parts.values()):
            return ReadAnswer(status="invalid", reason="the answer is not a pair of system level and fault type")
        words = [str(part).strip().lower() for part in parts.values()]
        if words[0] not in SYSTEM_LEVELS or words[1] not in FAULT_TYPES:
            return ReadAnswer(
                status="invalid", reason="the system level or fault type is not an allowed value", answer=parts
            )
        return ReadAnswer(status="ok", answer=parts)
    return ReadAnswer(status="ok", answer={})


def services_in_text(text: str, candidates: Sequence[str]) -> list[str]:
    """Return the services named in a text, in the order of the candidates.

    Only whole words count, and longer names match first, so that `mongodb-geo` does not count as `geo`.

    Examples
    --------
    >>> services_in_text("mongodb-geo refuses `rate`.", ["geo", "mongodb-geo", "rate"])
    ['mongodb-geo', 'rate']
    """
    if not candidates:
        return []
    longest_first = sorted(set(candidates), key=lambda name: (-len(name), name))
    pattern = rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])"
    matches = set(re.findall(pattern, text))
    return [name for name in dict.fromkeys(candidates) if name in matches]


def from_text(text: str, candidates: Sequence[str]) -> ReadAnswer:
    """Interpret free text as an answer: the candidates it names, all with the same rank."""
    services = services_in_text(text, candidates)
    if services:
        answer = {"services": services, "ordered": False, "text": text}
        return ReadAnswer(status="ok", reason="services extracted from free text", answer=answer)
    if not text.strip():
        return ReadAnswer(status="no_answer", reason="the answer is empty")
    reason = "free text names no candidate" if candidates else "free text without a list of candidates"
    return ReadAnswer(status="unparsed", reason=reason, answer={"text": text})


HARNESS_SHARE = 0.5
"""With at least this share of empty or failed messages, a run does not reflect its model."""
_MAX_COMMAND_LENGTH = 8000
"""Characters of a command that are searched; the patterns take quadratic time."""
_FAILED_CALL = re.compile(r"Error occurred while calling|Error code: [45]")
_REPAIR_SCRIPT = re.compile(r"(?:^|[\s;&|\"'])(?:\.?/)?(?:[\w.-]+/)*scripts/[\w.-]*(?:mitigate|recover|undo)[\w.-]*")
_ONLY_LOOKS = re.compile(r"\b(?:cat|ls|head|tail|less|grep|find|stat|wc|file)\b[^;&|]*$")
_INJECTOR = re.compile(
    r"\b(?:get|describe|delete|patch|annotate|edit)\b[^|;&]*\b(?:pod|network|stress|io|dns|http|time|kernel|jvm)chaos\b",
    re.IGNORECASE,
)
_NOTHING_ACCESSED = re.compile(
    r"^\s*$|No resources found|NotFound|not found|[Ee]rror|the server doesn't have a resource type|Forbidden"
)


def describe_harness_failure(trajectory: Trajectory) -> str:
    """Return why a run does not reflect its model; empty if it does."""
    messages = trajectory.agent_steps
    silent = [step for step in messages if _is_silent(step)]
    if messages and len(silent) >= HARNESS_SHARE * len(messages):
        return f"{len(silent)} of {len(messages)} messages of the agent are empty or failed model calls"
    return ""


def _is_silent(step: TrajectoryStep) -> bool:
    text = step.text.strip()
    return (not text and not step.tool_calls and not step.reasoning_content) or bool(_FAILED_CALL.match(text))


def describe_cheating(trajectory: Trajectory) -> str:
    """Return how an agent cheated: it ran the benchmark's repair or accessed the injector; empty if it did not."""
    for step in trajectory.agent_steps:
        results = {r.source_call_id: text_of(r.content) for r in (step.observation.results if step.observation else ())}
        for call in step.tool_calls or ():
            command = " ".join(value for value in call.arguments.values() if isinstance(value, str))[
                :_MAX_COMMAND_LENGTH
            ]
            scripts = _REPAIR_SCRIPT.finditer(command)
            if any(not _ONLY_LOOKS.search(command[: script.start() + 1]) for script in scripts):
                return f"step {step.step_id} runs the benchmark's own repair script"
            if _INJECTOR.search(command) and not ("submit" in call.function_name or "/submit" in command):
                output = results.get(call.tool_call_id, "")
                if not _NOTHING_ACCESSED.search(output):
                    return f"step {step.step_id} accesses the objects of the fault injector"
    return ""


def decide_status(
    trajectory: Trajectory,
    submitted: ReadAnswer | None,
    *,
    step_limits: Sequence[int] = (),
    stopped_by: str | None = None,
    cheats: Callable[[Trajectory], str] = describe_cheating,
) -> ReadAnswer:
    """Return the answer with the final status of the run and its reason.

    The status is the first that applies: harness_error; cheated; the status of the answer (ok, invalid, unparsed); the
    limit that ended the run (token_limit, cost_limit, timeout, step_limit), if known; no_answer.

    Parameters
    ----------
    submitted
        The submitted answer; None if there is none.
    step_limits
        Numbers of steps at which the source's harness stops.
    stopped_by
        Status stated by the source.
    """
    answer = submitted or ReadAnswer(status="no_answer", reason="the agent submitted nothing")
    failure = describe_harness_failure(trajectory)
    if failure:
        return replace(answer, status="harness_error", reason=failure)
    cheat = cheats(trajectory)
    if cheat:
        return replace(answer, status="cheated", reason=cheat)
    if submitted is not None and submitted.status != "no_answer":
        return submitted
    if stopped_by in ("token_limit", "cost_limit", "timeout", "step_limit", "harness_error"):
        return replace(
            answer, status=stopped_by, reason=f"ended by a {stopped_by.replace('_', ' ')}, according to the source"
        )
    steps = len(trajectory.agent_steps)
    if steps in step_limits:
        return replace(answer, status="step_limit", reason=f"no answer after {steps} steps, the limit of the harness")
    return answer


_MAX_NAME_LENGTH = 500
"""Maximum characters of a name."""


def build_run(source: str, trajectory: Trajectory, answer: ReadAnswer, **fields: Any) -> AgentRun:
    """Build the record of a run, without its name, paths and hashes.

    Parameters
    ----------
    source
        Name of the format.
    answer
        Answer with the final status, from `decide_status`.
    **fields
        Fields of `AgentRun`, which override the counts from the trajectory.
    """
    agent = trajectory.agent
    record = {
        "run": "unnamed",
        "format": source,
        "agent": agent.name[:_MAX_NAME_LENGTH],
        "agent_version": None if agent.version == "unknown" else agent.version[:_MAX_NAME_LENGTH],
        "model": agent.model_name and agent.model_name[:_MAX_NAME_LENGTH],
        "status": answer.status,
        "status_reason": answer.reason,
        "answer_json": None if answer.answer is None else canonical_json(jsonable(answer.answer)),
    }
    return AgentRun.model_validate(record | _count_usage(trajectory) | fields)


def _count_usage(trajectory: Trajectory) -> dict[str, Any]:
    steps = trajectory.agent_steps
    calls = [call for step in steps for call in step.tool_calls or ()]
    results = [result for step in steps if step.observation for result in step.observation.results]
    seen: set[tuple[str, str]] = set()
    repeats = 0
    for step in steps:
        message = (step.text, canonical_json([[call.function_name, call.arguments] for call in step.tool_calls or ()]))
        if message != ("", "[]"):
            repeats += message in seen
            seen.add(message)
    return {
        "steps": len(steps),
        "tool_calls": len(calls),
        "tool_errors": sum(bool(result.extra and result.extra.get("error")) for result in results),
        "repeats": repeats,
        **_count_tokens(trajectory),
    }


def _count_tokens(trajectory: Trajectory) -> dict[str, Any]:
    """Return the totals stated in the file, otherwise the sums over its steps."""
    final, steps = trajectory.final_metrics, [step.metrics for step in trajectory.agent_steps if step.metrics]

    def total(name: str) -> Any:
        stated = getattr(final, f"total_{name}", None) if final else None
        values = [value for metrics in steps if (value := getattr(metrics, name)) is not None]
        result = stated if stated is not None else sum(values) if values else None
        return result if result is not None and 0 <= result < 2**63 else None

    tokens = {name: total(name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    cost = total("cost_usd")
    source = "api" if any(value is not None for value in tokens.values()) else "none"
    return {**tokens, "cost_usd": None if cost is None else float(cost), "tokens_source": source}
