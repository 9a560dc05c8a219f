from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import httpx2
import uvicorn
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from faultset.agents.interface.mcp_server import LOOPBACK, loopback_app, mcp_server
from faultset.agents.interface.session import AgentSession

from .conftest import EPISODE, SAMPLE


def test_a_client_lists_the_tools_and_calls_them_until_it_has_answered(session) -> None:
    one = session("all")

    async def talk() -> list[Any]:
        async with Client(mcp_server(one)) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == set(one.tools.tools)
            good = await client.call_tool("kubectl", {"command": "kubectl get pods"})
            bad = await client.call_tool("get_logs", {"limit": -1})
            answer = {"fault": True, "services": ["geo"], "system_level": None, "fault_type": None}
            done = await client.call_tool("submit_all", answer)
            return [good, bad, done]

    good, bad, done = asyncio.run(talk())
    assert (good.is_error, good.structured_content) == (False, {"status": "ok"})
    assert bad.is_error
    assert bad.content[0].text.startswith("Invalid:")
    assert not done.is_error
    assert one.answer["services"] == ["geo"]


@pytest.mark.slow
def test_the_command_serves_a_client_on_standard_streams_and_stores_the_answer(tmp_path: Path) -> None:
    out = tmp_path / "answer.json"
    arguments = ["-c", "from faultset.core.start import faultset; faultset()", "agents", "serve", str(SAMPLE)]
    server = StdioServerParameters(command=sys.executable, args=[*arguments, "--episode", EPISODE, "--out", str(out)])

    async def talk() -> None:
        async with Client(server) as client:
            answer = await client.call_tool("query", {"sql": "select count(*) from metrics"})
            assert answer.structured_content == {"status": "ok"}
            done = {"fault": True, "services": ["geo"], "system_level": None, "fault_type": None}
            await client.call_tool("submit_all", done)

    asyncio.run(talk())
    assert json.loads(out.read_text())["answer"]["services"] == ["geo"]


@pytest.fixture
def served(session) -> Iterator[tuple[str, AgentSession]]:
    """Serve a session on a free port of loopback to clients with the token "right"."""
    one = session("all")
    server = uvicorn.Server(uvicorn.Config(loopback_app(one, "right"), log_level="error"))
    with socket.create_server((LOOPBACK, 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://{LOOPBACK}:{listening.getsockname()[1]}/mcp", one
        server.should_exit = True
        thread.join(20)


async def asked_over_http(address: str, headers: dict[str, str]) -> Any:
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        return await client.call_tool("kubectl", {"command": "kubectl get pods"})


def test_a_client_over_http_with_the_token_can_call_tools(served: tuple[str, AgentSession]) -> None:
    address, one = served
    pods = asyncio.run(asked_over_http(address, {"Authorization": "Bearer right"}))
    assert pods.structured_content == {"status": "ok"}
    assert "geo" in pods.content[0].text
    assert one.report()["calls"] == {"kubectl": 1}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "right"}])
def test_a_client_over_http_without_the_right_token_reaches_nothing(
    served: tuple[str, AgentSession], headers: dict[str, str]
) -> None:
    address, one = served
    with pytest.raises(ExceptionGroup) as refused:
        asyncio.run(asked_over_http(address, headers))
    assert refused.group_contains(MCPError, match="error response")
    assert httpx2.post(address, headers=headers, json={}).status_code == 401
    assert one.report()["tool_calls"] == 0
