"""The pool of connections of services."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from closed_ports import closed_port

from faultset.collector.runtime.http.client import (
    BrokenError,
    DialError,
    HttpAnswer,
    HttpClient,
    Names,
    UnknownHostError,
    main,
    wait_for,
)

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def with_client(serve: Serve, work: Callable[[HttpClient, int], Awaitable[None]]) -> None:
    """Do something with a client and the port of a server."""

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = HttpClient(local="127.0.0.6", names=Names(None), dial_timeout_s=5.0, max_age_s=60.0)
        client._generation_start_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(5):
                await work(client, server.sockets[0].getsockname()[1])
        finally:
            client.close()
            server.close()
            await asyncio.sleep(0.01)

    asyncio.run(run())


def answering(parts: list[bytes], ports: list[tuple[str, int]] | None = None) -> Serve:
    """Return a server whose connections answer every request with some parts, and end after an empty one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if ports is not None:
            ports.append(writer.get_extra_info("peername"))
        while await reader.readuntil(b"\r\n\r\n"):
            for part in parts:
                if not part:
                    writer.close()
                    return
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()

    return quietly


def test_connections_are_reused_but_take_no_new_request_past_their_age() -> None:
    ends: list[tuple[str, int]] = []

    async def work(client: HttpClient, port: int) -> None:
        for _ in range(2):
            assert await client.request("127.0.0.1", port, HEAD) == HttpAnswer(200, b"hi")
        assert len(ends) == 1
        client._generation_start_s -= 61.0
        await client.request("127.0.0.1", port, HEAD)
        assert len(ends) == 2
        assert {address for address, _ in ends} == {"127.0.0.6"}

    with_client(answering([WHOLE], ends), work)


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r\nh", b"i"], HttpAnswer(200, b"hi")),
        ([b"HTTP/1.1 503 No\r\n\r\nno", b" length", b""], HttpAnswer(503, b"no length")),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b"0\r\n\r\n"], HttpAnswer(200, b"a")),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", WHOLE], HttpAnswer(200, b"hi")),
        ([b"HTTP/1.1 500 Bad\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", b""], HttpAnswer(500, b"x")),
    ],
)
def test_answers_are_read_to_their_end(parts: list[bytes], answer: HttpAnswer) -> None:
    async def work(client: HttpClient, port: int) -> None:
        assert await client.request("127.0.0.1", port, HEAD) == answer
        assert await client.request("127.0.0.1", port, HEAD) == answer

    with_client(answering(parts), work)


@pytest.mark.parametrize(
    "parts", [[b""], [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", b""], [b"nonsense\r\n\r\n"]]
)
def test_a_connection_that_ends_before_the_answer_is_whole_is_broken(parts: list[bytes]) -> None:
    async def work(client: HttpClient, port: int) -> None:
        for _ in range(2):
            with pytest.raises(BrokenError):
                await client.request("127.0.0.1", port, HEAD)

    with_client(answering(parts), work)


def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    ends: list[tuple[str, int]] = []

    async def work(client: HttpClient, port: int) -> None:
        await client.request("127.0.0.1", port, HEAD)
        await asyncio.sleep(0.05)
        assert await client.request("127.0.0.1", port, HEAD) == HttpAnswer(200, b"hi")
        assert len(ends) == 2

    with_client(answering([WHOLE, b""], ends), work)


def test_a_request_that_is_given_up_takes_its_connection_along() -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    async def work(client: HttpClient, port: int) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.request("127.0.0.1", port, HEAD)
        await closed.wait()

    with_client(serve, work)


def test_why_a_connection_could_not_be_made_is_told() -> None:
    async def work(client: HttpClient, port: int) -> None:
        with closed_port() as closed, pytest.raises(DialError) as refused:
            await client.request("127.0.0.1", closed, HEAD)
        assert isinstance(refused.value.error, ConnectionRefusedError)

        async def unknown(name: str) -> str:
            raise UnknownHostError(name)

        client._names.address = unknown  # type: ignore[method-assign]
        with pytest.raises(DialError) as found:
            await client.request("nowhere", port, HEAD)
        assert isinstance(found.value.error, UnknownHostError)

    with_client(answering([WHOLE]), work)


def test_the_hosts_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"

    async def look_up() -> list[str]:
        names, found = Names(str(hosts)), []
        for known in ({"geo": "127.0.0.2"}, {"geo": "127.0.0.3"}):
            draft = tmp_path / "draft"
            draft.write_text(json.dumps(known))
            draft.rename(hosts)
            found.append(await names.address("geo"))
        with pytest.raises(UnknownHostError, match="unknown host rate"):
            await names.address("rate")
        return found

    assert asyncio.run(look_up()) == ["127.0.0.2", "127.0.0.3"]


def test_without_a_hosts_file_addresses_are_themselves_and_names_are_asked_of_dns() -> None:
    async def look_up() -> tuple[str, str]:
        names = Names(None)
        return await names.address("127.0.0.4"), await names.address("localhost")

    assert asyncio.run(look_up()) == ("127.0.0.4", "127.0.0.1")


def test_waiting_ends_when_somebody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text("{}")
    monkeypatch.setenv("FAULTSET_HOSTS", str(hosts))
    monkeypatch.setenv("POD_IP", "127.0.0.1")

    async def run(server: socket.socket) -> None:
        port = server.getsockname()[1]
        waiting = asyncio.create_task(wait_for("db", port, pause_s=0.01))
        await asyncio.sleep(0.03)
        hosts.write_text(json.dumps({"db": "127.0.0.1"}))
        await asyncio.sleep(0.03)
        assert not waiting.done()
        server.listen()
        await asyncio.wait_for(waiting, 5)

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        asyncio.run(run(server))
    assert set(capsys.readouterr().out.splitlines()) == {"waiting for db"}


def test_what_is_no_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db"]) == 2
    assert "SERVICE:PORT" in capsys.readouterr().err
