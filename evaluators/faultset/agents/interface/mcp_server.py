"""Serve the tools of a session over the Model Context Protocol, on standard streams or on loopback."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultset.agents.interface.session import AgentSession
from faultset.datasets.tools.toolset import TOOLS_VERSION

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

LOOPBACK = "127.0.0.1"


def mcp_server(session: AgentSession, on_answer: Callable[[], None] | None = None) -> Server[Any]:
    """Return a server for a session's tools; requires the extra `mcp`.

    Parameters
    ----------
    on_answer
        Called after the submission and after any later call, before the client gets the reply, because the client may
        then kill the server.
    """
    import anyio
    from mcp import types
    from mcp.server.lowlevel import Server

    lock = anyio.Lock()

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
            for tool in session.tools.tools.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        async with lock:
            answer = session.call(parameters.name, parameters.arguments)
            if session.answer is not None and on_answer is not None:
                on_answer()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=answer.text)],
            structured_content={"status": answer.status},
            is_error=answer.status == "invalid",
        )

    return Server(
        "faultset",
        version=TOOLS_VERSION,
        instructions=session.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_on_standard_streams(session: AgentSession, on_answer: Callable[[], None] | None = None) -> None:
    """Serve until the client closes standard input; nothing else may write to standard output."""
    import anyio
    from mcp.server.stdio import stdio_server

    server = mcp_server(session, on_answer)

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(serve)


def serve_on_loopback(
    session: AgentSession, port: int, token: str, on_answer: Callable[[], None] | None = None
) -> None:
    """Serve HTTP on 127.0.0.1 at the path /mcp to clients with the token, until interrupted."""
    import uvicorn

    uvicorn.run(loopback_app(session, token, on_answer), host=LOOPBACK, port=port, log_level="warning")


def loopback_app(session: AgentSession, token: str, on_answer: Callable[[], None] | None = None) -> Any:
    """Return the ASGI application for `serve_on_loopback`."""
    app = mcp_server(session, on_answer).streamable_http_app(host=LOOPBACK)
    expected = f"Bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        authorization = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(authorization, expected):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
            return
        await app(scope, receive, send)

    return guarded
