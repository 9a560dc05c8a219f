"""What an agent is, and what it is given: a problem, tools, and a model; never the truth."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from faultset.agents.interface.session import SessionTask
from faultset.agents.models.contract import Message, ModelReply
from faultset.datasets.tools.tool_answers import ToolAnswer

AgentKind = Literal["agent", "control"]


@dataclass(frozen=True, kw_only=True)
class AgentProblem:
    """What an agent is asked, in words and as data."""

    task: SessionTask
    """detection, localization, diagnosis, or all of them in one answer."""
    instructions: str
    """The task in words, with the alarm where there is one."""
    submission: str
    """Name of the tool that takes the answer and ends the attempt."""
    candidates: tuple[str, ...]
    """Services that an answer may name."""
    tools: tuple[dict[str, Any], ...]
    """All tools with the submission, as OpenAI's function objects."""
    alarm: str | None = None
    """When an alarm was raised, ISO 8601 in UTC; None where none is told of."""
    seed: int = 0
    """Of the attempt; another one in every trial."""


class Attempt(Protocol):
    """One attempt at a problem: the only way from an agent to the system and to a model.

    `call` and `ask` raise `AttemptOver` when a limit is reached; an agent lets it pass.
    """

    @property
    def problem(self) -> AgentProblem:
        """What is asked."""
        ...

    @property
    def answered(self) -> bool:
        """Whether an answer was taken, after which nothing more is told."""
        ...

    @property
    def last_step(self) -> bool:
        """Whether the limit leaves one more reply of the model."""
        ...

    @property
    def random(self) -> random.Random:
        """Random numbers of this attempt."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> ToolAnswer:
        """Call a tool with a mapping or its JSON text."""
        ...

    def ask(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, role: str = "act"
    ) -> ModelReply:
        """Ask the model; replies with the role "act" are steps, others are thoughts beside them."""
        ...


class AttemptOver(Exception):
    """An attempt ended before the agent had answered."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Agent(Protocol):
    """An agent, registered in the entry-point group `faultset.agents` as a class without arguments.

    Attributes
    ----------
    name
        As it is registered.
    title
        In a few words.
    version
        Raised when it acts otherwise than before.
    kind
        "control" for what is there to be compared with.
    needs_model
        Whether it calls a language model.
    stochastic
        Whether two attempts can differ.
    """

    name: str
    title: str
    version: str
    kind: AgentKind
    needs_model: bool
    stochastic: bool

    def act(self, attempt: Attempt) -> None:
        """Work on a problem, and end with a call of its submission."""
        ...
