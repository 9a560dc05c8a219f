"""The tools of a session as OpenAI's chat completions describe and call them."""

from __future__ import annotations

from typing import Any

from faultset.agents.interface.session import AgentSession


def tool_schemas(session: AgentSession) -> list[dict[str, Any]]:
    """Return the value of `tools` in a request for a chat completion."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in session.tools.tools.values()
    ]


def tool_message(session: AgentSession, call_id: str, name: str, arguments: str | None) -> dict[str, str]:
    """Carry out a call of a reply, whose arguments should be JSON text, and return the message that answers it."""
    return {"role": "tool", "tool_call_id": call_id, "content": session.call(name, arguments or "{}").text}
