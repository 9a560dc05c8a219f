from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp import Client, StdioServerParameters

from faultset.agents.interface.mcp_server import loopback_app, mcp_server

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


def test_nothing_is_served_on_loopback_without_the_token(session) -> None:
    app = loopback_app(session("all"), "secret")

    async def status(headers: list[tuple[bytes, bytes]]) -> int:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)
        return sent[0]["status"]

    assert asyncio.run(status([])) == 401
    assert asyncio.run(status([(b"authorization", b"Bearer wrong")])) == 401


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
