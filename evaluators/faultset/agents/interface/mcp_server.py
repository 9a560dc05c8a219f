"""The tools of a session as a server of the Model Context Protocol, over standard input and output or on loopback."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from faultset.agents.interface.session import AgentSession
from faultset.datasets.tools.toolset import TOOLS_VERSION

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

LOOPBACK = "127.0.0.1"


def mcp_server(session: AgentSession, answered: Callable[[], None] | None = None) -> Server[Any]:
    """Return a server of a session's tools; it needs the extra `mcp`.

    Parameters
    ----------
    answered
        Called when the answer is there, before the client hears of it: clients may end a server without notice.
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
            if session.answer is not None and answered is not None:
                answered()
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


def serve_on_standard_streams(session: AgentSession, answered: Callable[[], None] | None = None) -> None:
    """Serve until the client closes the input; nothing else may write to the output meanwhile."""
    import anyio
    from mcp.server.stdio import stdio_server

    server = mcp_server(session, answered)

    async def serve() -> None:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    anyio.run(serve)


def serve_on_loopback(session: AgentSession, port: int, token: str, answered: Callable[[], None] | None = None) -> None:
    """Serve HTTP on 127.0.0.1 at the path /mcp to who has the token, until interrupted."""
    import uvicorn

    uvicorn.run(loopback_app(session, token, answered), host=LOOPBACK, port=port, log_level="warning")


def loopback_app(session: AgentSession, token: str, answered: Callable[[], None] | None = None) -> Any:
    """Return the ASGI application that `serve_on_loopback` serves."""
    app = mcp_server(session, answered).streamable_http_app(host=LOOPBACK)
    wanted = f"Bearer {token}".encode()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        given = dict(scope.get("headers") or ()).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(given, wanted):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"the token is missing or wrong\n"})
            return
        await app(scope, receive, send)

    return guarded
