"""What a model is shown: the system prompt and the problem always, and as much of the newest as a budget holds."""

from __future__ import annotations

from typing import Any

from faultset.agents.models.contract import Message, ModelReply
from faultset.agents.running.attempt import estimated_tokens

_LEFT_OUT = "[Earlier steps were left out.]"


class Conversation:
    """Messages in turns: a reply of the model, and all that answers it.

    Parameters
    ----------
    system
        Prompt of the agent.
    problem
        What is asked.
    budget_tokens
        Estimated tokens of all messages; the oldest turns go first, the prompt and the problem never.
    """

    def __init__(self, system: str, problem: str, budget_tokens: int) -> None:
        self._head: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": problem}]
        self._turns: list[list[Message]] = []
        self.budget_tokens = budget_tokens

    @property
    def messages(self) -> list[Message]:
        """What is sent."""
        left = self.budget_tokens - estimated_tokens(self._head)
        kept: list[list[Message]] = []
        for turn in reversed(self._turns):
            left -= estimated_tokens(turn)
            if left < 0 and kept:
                break
            kept.insert(0, turn)
        note: list[Message] = [{"role": "user", "content": _LEFT_OUT}] if len(kept) < len(self._turns) else []
        return [*self._head, *note, *(message for turn in kept for message in turn)]

    @property
    def newest(self) -> list[Message]:
        """All messages after the problem, oldest first."""
        return [message for turn in self._turns for message in turn]

    def replied(self, reply: ModelReply, *, native: bool) -> None:
        """Begin a turn with a reply."""
        message: Message = {"role": "assistant", "content": reply.text}
        if native and reply.calls:
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in reply.calls
            ]
        self._turns.append([message])

    def observed(self, call_id: str, text: str) -> None:
        """Add what a call of the last reply brought."""
        self._turns[-1].append({"role": "tool", "tool_call_id": call_id, "content": text})

    def told(self, text: str) -> None:
        """Add words of the user to the last turn."""
        if self._turns:
            self._turns[-1].append({"role": "user", "content": text})
        else:
            self._head.append({"role": "user", "content": text})

    def shorten(self) -> bool:
        """Halve what is shown, because the model takes less; False when there is nothing left to leave out."""
        now = estimated_tokens(self.messages)
        if len(self._turns) < 2:
            return self._shorten_last()
        self.budget_tokens = now // 2
        return estimated_tokens(self.messages) < now or self._shorten_last()

    def _shorten_last(self) -> bool:
        """Cut the longest observation of the last turn in half."""
        observed: list[dict[str, Any]] = [m for turn in self._turns[-1:] for m in turn[1:]]
        longest = max(observed, key=lambda message: len(message["content"]), default=None)
        if longest is None or len(longest["content"]) < 400:
            return False
        longest["content"] = longest["content"][: len(longest["content"]) // 2] + "\n[The rest was left out.]"
        return True
