"""An attempt in this process: tools and model behind limits, and every step written down as it is made."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from faultset.agents.interface.openai_tools import tool_schemas
from faultset.agents.interface.session import AgentSession
from faultset.agents.models.contract import ChatModel, Message, ModelFailure, ModelReply
from faultset.agents.models.prices import ModelPrice
from faultset.agents.running.contract import AgentProblem, AttemptOver
from faultset.agents.running.limits import AttemptLimits
from faultset.agents.running.steps import StepRecorder
from faultset.core.errors import UsageError
from faultset.datasets.tools.clock import stamp
from faultset.datasets.tools.tool_answers import ToolAnswer

CHARACTERS_OF_A_TOKEN = 4
"""Where a server does not say how many tokens it counted."""
_MOST_CALLS_AFTER_A_REPLY = 50


def problem_of(session: AgentSession, *, alarm_ns: int | None = None, seed: int = 0) -> AgentProblem:
    """Return what a session asks, with the alarm that the agent is told."""
    alarm = None if alarm_ns is None else stamp(alarm_ns, "seconds")
    told = "" if alarm is None else f" An alarm was raised at {alarm}; it may be false."
    return AgentProblem(
        task=session.task,
        instructions=f"{session.instructions}{told} It is {session.tools.clock} now.",
        submission=session.submission,
        candidates=session.candidates,
        tools=tuple(tool_schemas(session)),
        alarm=alarm,
        seed=seed,
    )


class LocalAttempt:
    """An attempt at a session.

    Parameters
    ----------
    session
        Tools of the episode.
    problem
        What is asked.
    model
        None for an agent that needs none.
    price
        Of the model; None where it is not known.
    """

    def __init__(
        self,
        session: AgentSession,
        problem: AgentProblem,
        recorder: StepRecorder,
        limits: AttemptLimits,
        *,
        model: ChatModel | None = None,
        price: ModelPrice | None = None,
    ) -> None:
        self._session, self._model, self._price = session, model, price
        self._limits, self._recorder = limits, recorder
        self.problem = problem
        self.random = random.Random(problem.seed)
        self.answered_ns: int | None = None
        self.steps = 0
        self.model_calls = 0
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.estimated = False
        self.seconds_model = self.seconds_tools = 0.0
        self.cost_usd: float | None = None if price is None else 0.0
        self._calls_since_reply = 0

    @property
    def answered(self) -> bool:
        return self._session.answer is not None

    @property
    def last_step(self) -> bool:
        return self.steps >= self._limits.steps - 1

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        self._check_limits()
        self._calls_since_reply += 1
        if self._model is None:
            if self.steps >= self._limits.steps:
                raise AttemptOver("step_limit", f"{self._limits.steps} calls without an answer")
            self.steps += 1
        elif self._calls_since_reply > _MOST_CALLS_AFTER_A_REPLY:
            raise AttemptOver("step_limit", f"more than {_MOST_CALLS_AFTER_A_REPLY} calls after one reply")
        started = time.monotonic()
        answered_before = self.answered
        answer = self._session.call(name, arguments)
        self.seconds_tools += time.monotonic() - started
        if self.answered and not answered_before:
            self.answered_ns = self._session.tools.clock.now_ns
        self._recorder.called(name, _mapping(arguments), answer)
        return answer

    def ask(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, role: str = "act"
    ) -> ModelReply:
        if self._model is None:
            raise UsageError("this agent asks a model, and says that it needs none")
        self._check_limits()
        if role == "act" and self.steps >= self._limits.steps:
            raise AttemptOver("step_limit", f"{self._limits.steps} steps without an answer")
        left_s = self._limits.seconds - self.seconds_model - self.seconds_tools
        self.model_calls += 1
        reply = self._model.reply(messages, tools, time_limit_s=left_s)
        self.steps += role == "act"
        self._calls_since_reply = 0
        self.seconds_model += reply.seconds
        cost = self._count(messages, tools, reply)
        self._recorder.replied(reply, role, cost)
        return reply

    def _count(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], reply: ModelReply) -> float | None:
        prompt, completion = reply.prompt_tokens, reply.completion_tokens
        if prompt is None or completion is None:
            self.estimated = True
            said = reply.text + "".join(call.name + call.arguments for call in reply.calls)
            prompt = estimated_tokens(messages) + estimated_tokens(tools) if prompt is None else prompt
            completion = -(-len(said) // CHARACTERS_OF_A_TOKEN) if completion is None else completion
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.cached_tokens += reply.cached_tokens or 0
        if self._price is None or self.cost_usd is None:
            return None
        cost = self._price.cost_usd(prompt, reply.cached_tokens or 0, completion)
        self.cost_usd += cost
        return cost

    def _check_limits(self) -> None:
        limits = self._limits
        if self.prompt_tokens + self.completion_tokens >= limits.tokens:
            raise AttemptOver("token_limit", f"{limits.tokens:,} tokens without an answer")
        if self.seconds_model + self.seconds_tools >= limits.seconds:
            raise AttemptOver("timeout", f"{limits.seconds:g} s without an answer")
        if limits.cost_usd is not None and (self.cost_usd or 0.0) >= limits.cost_usd:
            raise AttemptOver("cost_limit", f"{limits.cost_usd:g} US dollars without an answer")


def estimated_tokens(content: Sequence[Any]) -> int:
    """Return about how many tokens messages or tools are: a quarter of their characters as JSON."""
    return len(json.dumps(content, ensure_ascii=False)) // CHARACTERS_OF_A_TOKEN


def ending_of(failure: ModelFailure) -> AttemptOver:
    """Return how an attempt ends whose model gave no reply."""
    return AttemptOver("token_limit" if failure.kind == "context" else "harness_error", str(failure))


def _mapping(arguments: Mapping[str, Any] | str | None) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return {"not_json": arguments}
        return read if isinstance(read, dict) else {"not_an_object": read}
    return dict(arguments or {})
