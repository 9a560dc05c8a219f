"""The HTTP server of services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from faultset.collector.runtime.http.server import Handler, HttpRequest, HttpServer, Response

Work = Callable[[HttpServer, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def with_connection(handler: Handler, work: Work) -> None:
    """Do something on one connection to a server."""

    async def run() -> None:
        server = HttpServer(handler)
        reader, writer = await asyncio.open_connection(*await server.listen("127.0.0.1", 0))
        try:
            async with asyncio.timeout(5):
                await work(server, reader, writer)
        finally:
            writer.close()
            await server.close(0.1)

    asyncio.run(run())


async def echo(request: HttpRequest) -> Response:
    """Answer what was understood."""
    told = [request.method, request.path, request.query, request.headers.get("a"), request.body.decode(), request.url]
    return Response(200, json.dumps(told).encode(), "application/json")


async def answer(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return head and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    size = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("Content-Length"))
    return head, await reader.readexactly(size)


def test_requests_of_one_connection_are_answered_in_turn_however_they_are_cut() -> None:
    async def work(server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = b"POST /a%20b?x=1&x=2&y= HTTP/1.1\r\nHost: web:80\r\nA: 1\r\na: 2\r\nContent-Length: 3\r\n\r\nabc"
        second = b"POST /c HTTP/1.1\r\nHost: web\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\n"
        for place in range(0, len(first), 7):
            writer.write(first[place : place + 7])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(second + second)
        head, body = await answer(reader)
        assert head.startswith("HTTP/1.1 200 OK\r\n")
        assert "application/json" in head
        assert json.loads(body) == ["POST", "/a b", {"x": "1", "y": ""}, "1, 2", "abc", "http://web/a%20b?x=1&x=2&y="]
        for _ in range(2):
            assert json.loads((await answer(reader))[1])[1:5] == ["/c", {}, None, "def"]

    with_connection(echo, work)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 2_000_000, b"413"),
    ],
)
def test_what_is_no_request_or_too_large_is_refused_and_the_connection_closed(sent: bytes, status: bytes) -> None:
    async def work(server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert (await reader.readline()).split()[1] == status

    with_connection(echo, work)


def test_a_client_that_goes_away_cancels_what_it_asked_for() -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def hang(request: HttpRequest) -> Response:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return Response(200)

    async def work(server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        writer.close()
        await cancelled.wait()

    with_connection(hang, work)


def test_a_server_that_closes_answers_what_is_under_way_and_takes_nothing_new() -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def slow(request: HttpRequest) -> Response:
        begun.set()
        await end.wait()
        return Response(200, b"done")

    async def work(server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("peername")
        idle, other = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await begun.wait()
        closing = asyncio.create_task(server.close(5.0))
        assert await idle.read() == b""
        other.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        end.set()
        head, body = await answer(reader)
        assert ("Connection: close" in head, body) == (True, b"done")
        assert await reader.read() == b""
        await closing

    with_connection(slow, work)


def test_a_handler_that_fails_is_a_500_and_the_connection_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken(request: HttpRequest) -> Response:
        if request.path == "/bad":
            raise ValueError("no luck")
        return Response(204)

    async def work(server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /bad HTTP/1.1\r\n\r\nGET /good HTTP/1.1\r\n\r\n")
        statuses = [(await answer(reader))[0].split()[1] for _ in range(2)]
        assert statuses == ["500", "204"]

    with_connection(broken, work)
    assert "no luck" in capsys.readouterr().err
