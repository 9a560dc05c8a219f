"""Serve the tools of a session to other programs, over the Model Context Protocol or over a Unix socket."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from faultset.agents.interface.session import AgentSession, MitigationSession
from faultset.core.errors import PlatformError
from faultset.datasets.tools.toolset import TOOLS_VERSION, EpisodeTools

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


_MAX_LINE_LENGTH = 1 << 22


class RemoteOperator:
    """Delegates the repair to a program on a Unix socket; the mitigator `operator` of `faultset.mitigators`.

    Messages are JSON, one per line. The episode's process connects and sends a greeting with the tools. Each request
    then names a tool, and each reply contains its result. The repair ends with the submission, or when the program
    closes the connection.
    """

    def mitigate(self, tools: EpisodeTools, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the tools of a live episode to the program, and return the report of the session.

        Parameters
        ----------
        settings
            `socket`: path of the program's Unix socket.
        """
        session = MitigationSession(tools)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(settings["socket"]))
            with connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
                _write(lines, {"candidates": session.candidates, "tools": tools.schemas()})
                while session.answer is None and (line := lines.readline(_MAX_LINE_LENGTH)):
                    request = json.loads(line)
                    answer = session.call(str(request.get("name")), request.get("arguments"))
                    failed = answer.status == "invalid"
                    _write(lines, {"text": answer.text, "failed": failed, "report": session.report()})
        return session.report()


class OperatorConnection:
    """The program's end of the connection; a tool host for Inspect.

    Parameters
    ----------
    connection
        Socket accepted from the episode's process.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._lock = anyio.Lock()
        greeting = self._read()
        self.schemas: list[dict[str, Any]] = greeting["tools"]
        self.candidates: list[str] = greeting["candidates"]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool of the live episode."""
        from faultset.agents.interface.inspect_tools import ToolReply

        async with self._lock:
            reply = await anyio.to_thread.run_sync(self._exchange, name, arguments, abandon_on_cancel=True)
        return ToolReply(**reply)

    def close(self) -> None:
        """End the repair; the system is then checked."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # the episode has already ended
            return
        finally:
            self._connection.close()

    def _exchange(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _write(self._lines, {"name": name, "arguments": arguments})
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline(_MAX_LINE_LENGTH)
        if not line:
            raise PlatformError("the live episode has ended, perhaps at its time limit; raise --within for more time")
        return json.loads(line)


def _write(lines: Any, message: Mapping[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()
