"""One run: an agent works on a session, and what it did becomes a record and a trajectory."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from faultset.agents.interface.session import AgentSession
from faultset.agents.models.contract import ChatModel, ModelFailure
from faultset.agents.models.prices import ModelPrice
from faultset.agents.running.attempt import LocalAttempt, ending_of, problem_of
from faultset.agents.running.contract import Agent, AttemptOver
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.steps import StepRecorder
from faultset.agents.runs.answers import FAULT_TYPES, SYSTEM_LEVELS, ReadAnswer
from faultset.agents.runs.counting import counted_run
from faultset.agents.runs.record import AgentRun
from faultset.agents.runs.statuses import decided
from faultset.agents.trajectories.model import Trajectory
from faultset.core.errors import FaultsetError, in_one_sentence

FORMAT = "faultset"
"""Name of the format of runs that were made here."""
FATAL = frozenset({"refused_key", "unknown_model"})
"""Failures of a model that every other run would meet too."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run that is over: its record, and what the agent did."""

    run: AgentRun
    trajectory: Trajectory
    cpu_seconds: float
    """Processor time on this machine, without the model's."""


def run_agent(
    agent: Agent,
    session: AgentSession,
    limits: AttemptLimits,
    *,
    alarm_ns: int | None = None,
    problem_seed: int = 0,
    model: ChatModel | None = None,
    price: ModelPrice | None = None,
    secrets: tuple[str, ...] = (),
    **fields: Any,
) -> FinishedRun:
    """Let an agent work on a session until it has answered or a limit is reached, and return a record in any case.

    Parameters
    ----------
    alarm_ns
        Alarm that it is told, UTC nanoseconds.
    problem_seed
        For what the agent draws at random.
    secrets
        Texts that no tool shows, such as the folder of the dataset: a call that holds one is cheating.
    **fields
        Fields of `AgentRun` that say what the run is about.

    Raises
    ------
    ModelFailure
        The model cannot be reached in a way that no other run could either: the key or the model's name is refused.
    """
    problem = problem_of(session, alarm_ns=alarm_ns, seed=problem_seed)
    name = model.name if model is not None else None
    recorder = StepRecorder(agent.name, agent.version, name, problem.instructions)
    attempt = LocalAttempt(session, problem, recorder, limits, model=model, price=price)
    started_ns, started_cpu = time.time_ns(), time.thread_time()
    over: AttemptOver | None = None
    try:
        agent.act(attempt)
    except AttemptOver as end:
        over = end
    except ModelFailure as failure:
        if failure.kind in FATAL:
            raise
        over = ending_of(failure)
    except FaultsetError as error:
        over = AttemptOver("harness_error", str(error))
    except Exception as error:
        # whatever an agent's code does is one status of one run
        _log.debug("agent %s", agent.name, exc_info=True)
        over = AttemptOver("harness_error", f"the agent's code failed: {in_one_sentence(error)}")
    if session.answer is not None:
        over = None
    if over is not None:
        recorder.ended(over.status, over.reason)
    else:
        over = AttemptOver("no_answer", "the agent stopped without an answer") if session.answer is None else None
    trajectory = recorder.trajectory()
    found = _decided(trajectory, session, over, secrets)
    tools = session.tools
    record = {
        "agent": agent.name,
        "agent_version": agent.version,
        "model": name,
        "task": session.task,
        "steps": attempt.steps,
        "model_calls": attempt.model_calls,
        "tool_calls": sum(tools.counts.values()),
        "tool_errors": tools.counts["invalid"],
        "not_recorded": tools.counts["not_recorded"],
        "refused": tools.counts["refused"],
        "repeats": tools.repeats,
        "prompt_tokens": attempt.prompt_tokens if model is not None else None,
        "cached_tokens": attempt.cached_tokens if model is not None else None,
        "completion_tokens": attempt.completion_tokens if model is not None else None,
        "tokens_source": "none" if model is None else "estimated" if attempt.estimated else "api",
        "cost_usd": attempt.cost_usd if model is not None else 0.0,
        "seconds_model": round(attempt.seconds_model, 3),
        "seconds_tools": round(attempt.seconds_tools, 3),
        "seconds": round(attempt.seconds_model + attempt.seconds_tools, 3),
        "started_ns": started_ns,
        "alarm_ns": alarm_ns,
        "answered_ns": attempt.answered_ns,
        "stop_reason": "submitted" if session.answer is not None else over.status if over is not None else None,
        "contamination": "none" if model is None else "unknown",
    }
    run = counted_run(FORMAT, trajectory, found, **(record | fields))
    return FinishedRun(run=run, trajectory=trajectory, cpu_seconds=time.thread_time() - started_cpu)


def _decided(
    trajectory: Trajectory, session: AgentSession, over: AttemptOver | None, secrets: tuple[str, ...]
) -> ReadAnswer:
    answer = session.answer
    cheat = _touches(trajectory, secrets)
    if cheat:
        return ReadAnswer(status="cheated", reason=cheat, answer=answer)
    if answer is None:
        assert over is not None
        found = ReadAnswer(status=over.status, reason=over.reason)  # type: ignore[arg-type]
    else:
        problem = _invalid(answer, session.candidates)
        found = ReadAnswer(status="invalid" if problem else "ok", reason=problem, answer=answer)
    return decided(trajectory, found, cheats=lambda _: "")


def _invalid(answer: dict[str, Any], candidates: tuple[str, ...]) -> str:
    """Say why an answer cannot be scored; empty where it can."""
    services = answer.get("services", ())
    if services and not any(name in candidates for name in services):
        return f"{len(services)} of {len(services)} names are no candidates"
    for key, known in (("system_level", SYSTEM_LEVELS), ("fault_type", FAULT_TYPES)):
        word = answer.get(key)
        if word is not None and word.strip().lower() not in known:
            return f"{key} is none of the allowed words"
    return ""


def _touches(trajectory: Trajectory, secrets: tuple[str, ...]) -> str:
    for step in trajectory.agent_steps:
        for call in step.tool_calls or ():
            text = repr(call.arguments)
            if any(secret in text for secret in secrets):
                return f"step {step.step_id} names a file of the dataset, which no tool tells"
    return ""
