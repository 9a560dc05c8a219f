"""What the load driver for HTTP sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
from closed_ports import closed_port

from faultset.collector.load.driver import LoadTarget, RequestResult
from faultset.collector.load.http_driver import HttpDriver
from faultset.collector.load.schedule import ScheduledRequest

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


def request(path: str = "/", body: Literal["query", "form", "json"] = "query", **parameters: str) -> ScheduledRequest:
    method = "GET" if body == "query" else "POST"
    return ScheduledRequest(gap=1.0, kind=0, method=method, path=path, parameters=parameters, body=body)


def target(port: int, prefix: str = "", timeout_s: float = 5.0) -> LoadTarget:
    return LoadTarget(
        url=f"http://127.0.0.1:{port}{prefix}", local_address="127.0.0.6", timeout_s=timeout_s, options={}
    )


def exchange(
    wanted: ScheduledRequest, answer: bytes = OK, *, prefix: str = "", timeout_s: float = 5.0
) -> tuple[str, RequestResult]:
    """Send a request to a server with one answer; return what came to the server, and the result."""
    came: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(1 << 16))
        writer.write(answer)
        if not answer:
            await reader.read()
        writer.close()

    async def run() -> RequestResult:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        driver = HttpDriver(target(server.sockets[0].getsockname()[1], prefix, timeout_s))
        try:
            return await driver.send(wanted)
        finally:
            await driver.close()
            server.close()
            await asyncio.sleep(0.01)

    result = asyncio.run(run())
    return b"".join(came).decode(), result


@pytest.mark.parametrize(
    ("wanted", "first_line", "end"),
    [
        (request("/hotels", inDate="2015-04-09", name="a b&c"), "GET /shop/hotels?inDate=2015-04-09&name=a+b%26c", ""),
        (request("/search?q=1", page="2"), "GET /shop/search?q=1&page=2", ""),
        (request("/café%20x"), "GET /shop/caf%C3%A9%20x", ""),
        (request("/post", "form", text="a b"), "POST /shop/post", "text=a+b"),
        (request("/post", "json", text="é"), "POST /shop/post", '{"text": "\\u00e9"}'),
    ],
    ids=["query", "query in the path", "escapes", "form", "json"],
)
def test_parameters_are_sent_as_the_request_says(wanted: ScheduledRequest, first_line: str, end: str) -> None:
    came, result = exchange(wanted, prefix="/shop/")
    head, _, body = came.partition("\r\n\r\n")
    assert head.splitlines()[0] == f"{first_line} HTTP/1.1"
    assert body == end
    assert f"Content-Length: {len(end)}" in head or not end
    assert result == RequestResult("ok", 200)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", RequestResult("ok", 302)),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", RequestResult("http_error", 404)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", RequestResult("ok", 200)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhi", RequestResult("refused")),
        (b"no HTTP", RequestResult("refused")),
    ],
    ids=["redirection", "refusal", "chunks", "cut off", "nonsense"],
)
def test_answers_become_outcomes(answer: bytes, result: RequestResult) -> None:
    assert exchange(request(), answer)[1] == result


def test_a_request_without_an_answer_in_time_is_a_timeout() -> None:
    assert exchange(request(), b"", timeout_s=0.05)[1] == RequestResult("timeout")


def test_an_address_at_which_nobody_listens_refuses() -> None:
    with closed_port() as port:

        async def run() -> RequestResult:
            return await HttpDriver(target(port)).send(request())

        assert asyncio.run(run()) == RequestResult("refused")
