"""Offer the tools of a session as Inspect tools; the session's report is kept in the sample's store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import anyio.to_thread
from inspect_ai.model import ChatMessage, ChatMessageAssistant, ChatMessageTool, execute_tools
from inspect_ai.solver import TaskState
from inspect_ai.tool import Tool, ToolCall, ToolDef, ToolError, ToolParams
from inspect_ai.util import Store, store

from faultset.agents.interface.session import AgentSession
from faultset.agents.runs.record import REPORT


@dataclass(frozen=True, kw_only=True)
class ToolReply:
    """The result of a call, and the session's report after it."""

    text: str
    failed: bool
    report: Mapping[str, Any]


class ToolHost(Protocol):
    """A session in this process or in the process of a live episode."""

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """Return the name, description and parameters (JSON Schema) of each tool."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Call a tool."""
        ...


class LocalToolHost:
    """A session in this process; calls run in a thread, one at a time."""

    def __init__(self, session: AgentSession) -> None:
        self._session, self._lock = session, anyio.Lock()
        self.schemas = session.tools.schemas()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        async with self._lock:
            answer = await anyio.to_thread.run_sync(self._session.call, name, arguments)
            return ToolReply(text=answer.text, failed=answer.status == "invalid", report=self._session.report())


def inspect_tools(host: ToolHost) -> list[Tool]:
    """Return the tools of a session; each call updates the report in the sample's store."""
    return [_tool(host, schema) for schema in host.schemas]


def _tool(host: ToolHost, schema: Mapping[str, Any]) -> Tool:
    name = str(schema["name"])

    async def execute(**kwargs: Any) -> str:
        reply = await host.call(name, kwargs)
        store().set(REPORT, dict(reply.report))
        if reply.failed:
            raise ToolError(reply.text)
        return reply.text

    parameters = ToolParams.model_validate(schema["parameters"])
    # the tools limit the size of their answers themselves
    return ToolDef(execute, name, str(schema["description"]), parameters, max_output=0).as_tool()


def session_report(sample_store: Store) -> Mapping[str, Any]:
    """Return the latest report of a sample's session; empty for other tasks."""
    return sample_store.get(REPORT, {})


def is_answered(state: TaskState) -> bool:
    """Return whether the session has an answer."""
    return session_report(state.store).get("answer") is not None


async def call_tool(state: TaskState, name: str, arguments: Mapping[str, Any] | None = None) -> str:
    """Call a tool on behalf of the assistant, without a model, and return the text of its result."""
    call = ToolCall(id=f"call-{len(state.messages)}", function=name, arguments=dict(arguments or {}))
    state.messages.append(ChatMessageAssistant(content="", tool_calls=[call]))
    messages, _ = await execute_tools(state.messages, state.tools)
    state.messages.extend(messages)
    return "\n".join(shown_text(message) for message in messages)


def shown_text(message: ChatMessage) -> str:
    """Return the text of a message as the model sees it; for a failed call, the error."""
    error = message.error if isinstance(message, ChatMessageTool) else None
    return error.message if error is not None else message.text
