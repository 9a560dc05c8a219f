"""RCA-agent of OpenRCA (MIT licence): a controller that gives instructions, and an executor that carries them out.

The executor of the original writes Python for a kernel. This one uses the tools of the episode, SQL among them, on the
same loop; when it fails twice the controller is told so, where the original reports success.
"""

from __future__ import annotations

import json
from typing import Any

from faultset.agents.models.contract import ModelFailure
from faultset.agents.reference.conversation import Conversation
from faultset.agents.reference.loop import LoopAgent, ToolTurns, prompt_text
from faultset.agents.running.contract import Attempt

_CONTROLLER_STEPS = 25
_EXECUTOR_STEPS = 6
_TRIES = 2
_RAW_CHARACTERS = 8000
_FORM = 'Answer with one JSON object with the keys "analysis", "completed" and "instruction".'


class RCAAgent(LoopAgent):
    """Plans and looks by turns in two roles."""

    name = "rca-agent"
    title = "RCA-agent: a controller and an executor (Xu et al. 2025, OpenRCA)"
    prompt = "rca_controller.md"

    def act(self, attempt: Attempt) -> None:
        """Give instructions until the cause is clear, then answer."""
        problem = attempt.problem
        chat = Conversation(prompt_text(self.prompt), problem.instructions, self.history_tokens)
        chat.told(f"Candidates: {', '.join(problem.candidates)}")
        for _ in range(_CONTROLLER_STEPS):
            if attempt.last_step:
                break
            reply = _asked(attempt, chat)
            plan = _plan(reply)
            if plan is None:
                chat.told(_FORM)
            elif str(plan.get("completed", "")).strip().lower() == "true":
                break
            else:
                chat.told(self._result(attempt, str(plan["instruction"])))
        self._answer(attempt, chat)

    def _result(self, attempt: Attempt, instruction: str) -> str:
        """Let the executor try twice, and return its summary with what it saw."""
        seen: list[str] = []
        for _ in range(_TRIES):
            chat = Conversation(prompt_text("rca_executor.md"), f"Instruction: {instruction}", self.history_tokens)
            tools = [t for t in attempt.problem.tools if t["function"]["name"] != attempt.problem.submission]
            turns = ToolTurns(attempt, chat, tools, role="executor", needs_call=False)
            for _ in range(_EXECUTOR_STEPS):
                observed = turns.next()
                seen += observed
                if not observed:
                    summary = chat.newest[-1]["content"].strip()
                    if summary:
                        return f"Result: {summary}\n\nRaw output:\n{_newest(seen)}"
                    break
        return f"The executor did not come to a result. Raw output:\n{_newest(seen)}"

    def _answer(self, attempt: Attempt, chat: Conversation) -> None:
        submission = attempt.problem.submission
        chat.told(f"The analysis is over. Answer with a call of {submission}.")
        tools = [tool for tool in attempt.problem.tools if tool["function"]["name"] == submission]
        turns = ToolTurns(attempt, chat, tools)
        while not attempt.answered:
            turns.next()


def _asked(attempt: Attempt, chat: Conversation) -> str:
    while True:
        try:
            reply = attempt.ask(chat.messages)
        except ModelFailure as failure:
            if failure.kind != "context" or not chat.shorten():
                raise
        else:
            chat.replied(reply, native=False)
            return reply.text


def _plan(text: str) -> dict[str, Any] | None:
    """Read the controller's object, alone or between other words."""
    first, last = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[first : last + 1])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and {"completed", "instruction"} <= found.keys() else None


def _newest(seen: list[str]) -> str:
    return "\n---\n".join(seen)[-_RAW_CHARACTERS:] or "nothing"
