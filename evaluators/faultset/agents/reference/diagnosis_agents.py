"""ReAct, GPT with a shell, FLASH and Stratus: prompts and hooks on one loop. The prompts are our own.

Sources: AIOpsLab (MIT licence) for the first three, SREGym (MIT licence) for Stratus.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from faultset.agents.models.contract import Message, ModelReply
from faultset.agents.reference.conversation import Conversation
from faultset.agents.reference.loop import LoopAgent, prompt_text
from faultset.agents.running.contract import Attempt

_READ_ALONG = 5
_OF_A_MESSAGE, _OF_THE_NEWEST, _OF_THE_HINT = 300, 1000, 1000
"""Characters."""


class ReAct(LoopAgent):
    """Thought and action in turns, with a reminder below every observation."""

    name = "react"
    title = "ReAct: thought and action in turns (Yao et al. 2023, as in AIOpsLab)"
    prompt = "react.md"
    history_tokens = 120_000

    def after(self, attempt: Attempt, chat: Conversation, observed: Sequence[str]) -> None:
        """Remind of the form."""
        chat.told(prompt_text("react_reminder.md"))


class GPTWithShell(LoopAgent):
    """kubectl and nothing else."""

    name = "gpt-w-shell"
    title = "a model with a shell for kubectl (AIOpsLab's GPT-w-shell)"
    prompt = "gpt_w_shell.md"
    tool_names = ("kubectl",)
    history_tokens = 120_000
    calls_in_a_reply = 1


class Flash(LoopAgent):
    """A second opinion below every observation.

    The agent that AIOpsLab publishes makes the hint and then drops it, because the function that makes it returns
    nothing. Here the model is given the hint.
    """

    name = "flash"
    title = "FLASH: a hindsight below every observation (as AIOpsLab simplified it, repaired)"
    prompt = "flash.md"
    history_tokens = 90_000

    def after(self, attempt: Attempt, chat: Conversation, observed: Sequence[str]) -> None:
        """Ask for the hint and show it."""
        said = [
            f"{message['role']}: {str(message['content'])[:_OF_A_MESSAGE]}" for message in chat.newest[-_READ_ALONG:]
        ]
        seen = "\n".join([*said, f"Newest observation: {observed[-1][:_OF_THE_NEWEST]}"])
        told = f"{attempt.problem.instructions}\n\nThe end of the conversation:\n{seen}"
        messages = [
            {"role": "system", "content": prompt_text("flash_hindsight.md")},
            {"role": "user", "content": told},
        ]
        hint = attempt.ask(messages, role="hindsight").text[:_OF_THE_HINT]
        if hint.strip():
            chat.told(f"Hint: {hint}")


class Stratus(LoopAgent):
    """One call of a tool a step, few steps, and an answer that is forced at the end.

    Of a recording the stage of diagnosis, because it cannot be repaired; of a live system the stage of mitigation.
    """

    name = "stratus"
    title = "Stratus, one stage (Chen et al. 2025, as in SREGym)"
    prompt = "stratus.md"
    live_prompt = "stratus_mitigation.md"
    tool_names = (
        "describe_system", "kubectl", "list_metrics", "get_metric", "get_spans", "get_trace", "service_graph", "wait",
    )  # fmt: skip
    calls_in_a_reply = 1
    stage_steps = 20

    def act(self, attempt: Attempt) -> None:
        """Go round for so many steps as a stage has."""
        super().act(StagedAttempt(attempt, self.stage_steps))


class StagedAttempt:
    """An attempt whose last step comes sooner than its limit says."""

    def __init__(self, inner: Attempt, steps: int) -> None:
        self._inner, self._left = inner, steps
        self.problem, self.random = inner.problem, inner.random
        self.call = inner.call

    @property
    def answered(self) -> bool:
        return self._inner.answered

    @property
    def last_step(self) -> bool:
        return self._left <= 1 or self._inner.last_step

    def ask(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = (), *, role: str = "act"
    ) -> ModelReply:
        self._left -= role == "act"
        return self._inner.ask(messages, tools, role=role)
