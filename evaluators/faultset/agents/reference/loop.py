"""The loop on which all agents with a model run: reply, calls, observations, until an answer is taken."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import resources
from typing import Any

from faultset.agents.models.contract import ModelFailure, ModelReply, RequestedCall
from faultset.agents.reference.actions import action_in, grammar
from faultset.agents.reference.conversation import Conversation
from faultset.agents.running.contract import AgentProblem, Attempt

_SHORTENINGS = 5
_NO_CALL = "Your reply calls no tool. Go on with a call; when you know the answer, call {submission}."
_LAST = "This is your last reply. Answer now with a call of {submission}."


class LoopAgent:
    """An agent on the loop; others differ in prompt, tools and hooks."""

    name = "loop"
    title = "tools and a prompt"
    version = "2"
    kind = "agent"
    needs_model = True
    stochastic = True
    prompt = "react.md"
    """File with the system prompt."""
    live_prompt: str | None = None
    """The one where a live system is to be repaired; None for the same."""
    tool_names: Collection[str] | None = None
    """Tools that it uses beside the submission; None for all."""
    history_tokens = 100_000
    """Estimated tokens of the messages that the model is shown."""
    calls_in_a_reply: int | None = None
    """How many calls of one reply are carried out; None for all."""
    forces_answer = True
    """Whether the last reply may only answer."""

    def act(self, attempt: Attempt) -> None:
        """Go round until an answer is taken or a limit is reached."""
        problem = attempt.problem
        live = self.live_prompt if problem.task == "mitigation" else None
        chat = Conversation(prompt_text(live or self.prompt), problem.instructions, self.history_tokens)
        turns = ToolTurns(attempt, chat, self.tools(problem), self.calls_in_a_reply)
        while not attempt.answered:
            if attempt.last_step and self.forces_answer:
                chat.told(_LAST.format(submission=problem.submission))
                turns.tools = [tool for tool in turns.tools if tool["function"]["name"] == problem.submission]
            observed = turns.next()
            if not attempt.answered and observed:
                self.after(attempt, chat, observed)

    def tools(self, problem: AgentProblem) -> list[dict[str, Any]]:
        """Return the tools that are offered."""
        names = None if self.tool_names is None else {*self.tool_names, problem.submission}
        return [tool for tool in problem.tools if names is None or tool["function"]["name"] in names]

    def after(self, attempt: Attempt, chat: Conversation, observed: Sequence[str]) -> None:
        """Add to what was observed; nothing by default."""


class ToolTurns:
    """Turns of a conversation in which a model calls tools, by the protocol or in text.

    Parameters
    ----------
    role
        Of the replies; see `Attempt.ask`.
    needs_call
        Whether a reply without a call is asked for one.
    """

    def __init__(
        self,
        attempt: Attempt,
        chat: Conversation,
        tools: Sequence[dict[str, Any]],
        calls_in_a_reply: int | None = None,
        *,
        role: str = "act",
        needs_call: bool = True,
    ) -> None:
        self._attempt, self._chat, self._most, self._role = attempt, chat, calls_in_a_reply, role
        self._needs_call = needs_call
        self.tools = list(tools)
        self.native = True
        self._explained = False

    def next(self) -> list[str]:
        """Ask once, carry out the calls of the reply, and return what was observed; empty without a call."""
        reply = self._asked()
        names = [tool["function"]["name"] for tool in self.tools]
        if reply.calls:
            self._chat.replied(reply, native=True)
            return self._carried_out(reply.calls)
        self._chat.replied(reply, native=False)
        action = action_in(reply.text, names)
        if action is not None:
            answer = self._attempt.call(action.name, action.arguments)
            self._chat.told(f"Observation:\n{answer.text}")
            return [answer.text]
        if not self._needs_call:
            return []
        words = _NO_CALL.format(submission=self._attempt.problem.submission)
        if not self._explained:
            self._explained = True
            words = f"{words}\n{grammar(self.tools)}"
        self._chat.told(words)
        return []

    def _carried_out(self, calls: Sequence[RequestedCall]) -> list[str]:
        observed = []
        for place, call in enumerate(calls):
            if self._attempt.answered:
                text = "Not carried out: the answer was given."
            elif self._most is not None and place >= self._most:
                text = f"Not carried out: at most {self._most} in a reply."
            else:
                text = self._attempt.call(call.name, call.arguments).text
                observed.append(text)
            self._chat.observed(call.call_id, text)
        return observed

    def _asked(self) -> ModelReply:
        for _ in range(_SHORTENINGS):
            try:
                return self._attempt.ask(self._chat.messages, self.tools if self.native else (), role=self._role)
            except ModelFailure as failure:
                if failure.kind == "no_tools" and self.native:
                    self.native = False
                    self._explained = True
                    self._chat.told(grammar(self.tools))
                elif failure.kind != "context" or not self._chat.shorten():
                    raise
        return self._attempt.ask(self._chat.messages, self.tools if self.native else (), role=self._role)


def prompt_text(name: str) -> str:
    """Return a prompt that comes with faultset."""
    return resources.files("faultset.agents.reference").joinpath("prompts", name).read_text("utf-8").strip()
