"""A program at a Unix socket repairs a live fault on the platform in memory; it is judged and undone afterwards."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from faultset.agents.interface.servers import OperatorConnection
from faultset.collector.mitigation.messages import MitigationResult, RepairOrder
from faultset.collector.mitigation.repairs import build_operator_order
from faultset.core.errors import PlatformError, UsageError
from tests.collector.mitigation.test_attempts import RIGHT, result_of, run_mitigation, wrong_parts

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import httpx2
import uvicorn
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from faultset.agents.interface.servers import LOOPBACK, loopback_app, mcp_server
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


Work = Callable[[OperatorConnection], None]


def call(connection: OperatorConnection, name: str, **arguments: Any) -> Any:
    return anyio.run(connection.call, name, arguments)


def kubectl(connection: OperatorConnection, command: str) -> str:
    return call(connection, "kubectl", command=command).text


@contextmanager
def operator(folder: Path, work: Work) -> Iterator[RepairOrder]:
    """Listen like the Inspect task does, and work on the connection in a thread."""
    failures: list[BaseException] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(folder / "operator"))
        listener.listen(1)
        listener.settimeout(30)

        def serve() -> None:
            connection = OperatorConnection(listener.accept()[0])
            try:
                work(connection)
            except BaseException as failure:
                failures.append(failure)
            finally:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield build_operator_order(folder / "operator", within_s=4, sustain_s=3)
        thread.join(30)
    assert failures == []


def repaired(folder: Path, work: Work) -> MitigationResult:
    with operator(folder, work) as order:
        return result_of(folder / "ran", order)


def test_a_program_that_finds_the_wrong_port_repairs(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        assert "geo" in connection.candidates
        assert "targetPort" in kubectl(connection, "kubectl get svc geo -o yaml | grep targetPort")
        kubectl(connection, RIGHT)
        call(connection, "wait", seconds=20)
        assert call(connection, "submit_mitigation", summary="the port").report["answer"] == {"summary": "the port"}

    result = repaired(tmp_path, work)
    assert result.success
    assert wrong_parts(result) == set()
    assert result.mitigator is not None
    assert (result.mitigator["status"], result.mitigator["calls"]) == (
        "ok",
        {"kubectl": 2, "wait": 1, "submit_mitigation": 1},
    )


def test_a_program_that_goes_away_hands_the_system_back(tmp_path: Path) -> None:
    result = repaired(tmp_path, lambda connection: None)
    assert not result.success
    assert result.mitigator is not None
    assert result.mitigator["status"] == "no_answer"


def test_a_write_outside_of_the_namespace_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    refusals: list[str] = []

    def work(connection: OperatorConnection) -> None:
        refusals.append(kubectl(connection, "kubectl -n kube-system delete pod --all"))
        refusals.append(kubectl(connection, "kubectl get pods; rm -rf /"))

    with operator(tmp_path, work) as order:
        outcome, platform = run_mitigation(tmp_path / "ran", order)
    (result,) = outcome.mitigations
    assert [one.status for one in result.commands] == ["refused"]
    assert "Refused: namespace kube-system is not the application's" in refusals[0]
    assert "needs a shell" in refusals[1]
    assert not [made for made in platform.calls if made[0] == "delete"]


def test_harm_is_judged_and_undone(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        kubectl(connection, RIGHT)
        kubectl(connection, "kubectl delete svc user search")
        kubectl(connection, "kubectl scale deploy geo --replicas 0")

    result = repaired(tmp_path, work)
    assert not result.success
    assert {"objects", "presence"} <= wrong_parts(result)


def test_an_undo_that_leaves_something_behind_voids_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultset.collector.platforms.fake.FakePlatform.undo", lambda self: None)
    monkeypatch.setattr("faultset.collector.episodes.actions.EpisodeActions._await_recovery", lambda self: None)

    def work(connection: OperatorConnection) -> None:
        kubectl(connection, "kubectl delete svc user")

    with operator(tmp_path, work) as order:
        outcome, _ = run_mitigation(tmp_path / "ran", order)
    assert outcome.failure.startswith("the undo is incomplete: Service user is missing; Service geo")


def test_after_the_submission_the_system_is_out_of_reach(tmp_path: Path) -> None:
    def work(connection: OperatorConnection) -> None:
        call(connection, "submit_mitigation")
        with pytest.raises((PlatformError, OSError)):
            kubectl(connection, "kubectl get pods")

    assert not repaired(tmp_path, work).success


def test_a_socket_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--operator must be the Unix socket of a listening program"):
        build_operator_order(tmp_path / "nothing")
