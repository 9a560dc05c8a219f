"""An HTTP/1.1 server with low overhead.

httptools parses the requests. Connections are kept open, and each handles its requests in order. See `client.py`
for the gain over aiohttp.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

import httptools
from yarl import URL

_LARGEST_BODY = 1 << 20
_LARGEST_HEAD = 1 << 16
_MAX_WAITING_REQUESTS = 16
"""Number of waiting requests of a connection at which reading from it pauses."""
_BACKLOG = 1024


class HttpRequest:
    """One complete request.

    `target` is the path and query as sent, still percent-encoded. Names of `headers` are in lower case; repeated
    headers are joined by commas.
    """

    __slots__ = ("body", "headers", "keep_alive", "method", "target")

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes, keep_alive: bool):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.keep_alive = keep_alive

    @property
    def path(self) -> str:
        """The decoded path."""
        return _decode_path(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        """The fields of the query; if a field is repeated, its first value."""
        pairs = parse_qsl(self.target.partition("?")[2], keep_blank_values=True)
        return dict(reversed(pairs))

    @property
    def url(self) -> str:
        return str(URL(f"http://{self.headers.get('host', '')}{self.target}"))

    @property
    def content_type(self) -> str:
        """The type of the body, without parameters."""
        return self.headers.get("content-type", "application/octet-stream").partition(";")[0].strip().lower()


class Response:
    """A response."""

    __slots__ = ("body", "content_type", "status")

    def __init__(self, status: int, body: bytes = b"", content_type: str = "text/plain; charset=utf-8"):
        self.status, self.body, self.content_type = status, body, content_type


Handler = Callable[[HttpRequest], Awaitable[Response]]


class HttpServer:
    """Serves a handler on one port.

    If a client disconnects, the handling of its request is cancelled. `close` lets requests finish first.
    """

    def __init__(self, handler: Handler):
        self.handler = handler
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address and port; raise OSError if that fails."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), host, port, backlog=_BACKLOG)
        return self._server.sockets[0].getsockname()[:2]

    async def close(self, drain_s: float) -> None:
        """Stop accepting requests, give those in progress `drain_s` to finish, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.finish()
        tasks = [connection.task for connection in self.connections if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One connection of a client, whose requests are handled in sequence."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop):
        self._server, self._loop = server, loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._waiting_requests: deque[HttpRequest] = deque()
        self._paused = self._finishing = False
        self.task: asyncio.Task[None] | None = None
        self._reset_request()

    def _reset_request(self) -> None:
        self._target, self._headers, self._body = b"", {}, b""
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._server.connections.add(self)
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._waiting_requests.clear()
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._finishing = True  # respond over HTTP and ignore the upgrade to another protocol
        except httptools.HttpParserError as error:
            self._refuse(413 if isinstance(error.__context__, _TooLargeError) else 400)

    # callbacks of httptools

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._grow(len(url), _LARGEST_HEAD)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value), _LARGEST_HEAD)
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._size = 0
        if "expect" in self._headers and self._headers["expect"].lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body
        self._grow(len(body), _LARGEST_BODY)

    def on_message_complete(self) -> None:
        parser = self._parser
        request = HttpRequest(
            parser.get_method().decode("ascii"),
            self._target.decode("latin-1"),
            self._headers,
            self._body,
            parser.should_keep_alive(),
        )
        self._reset_request()
        if self._finishing:
            return
        if self.task is None:
            self.task = self._loop.create_task(self._respond(request))
            return
        self._waiting_requests.append(request)
        if len(self._waiting_requests) >= _MAX_WAITING_REQUESTS and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _grow(self, size: int, limit: int) -> None:
        self._size += size
        if self._size > limit:
            raise _TooLargeError

    async def _respond(self, request: HttpRequest) -> None:
        try:
            response = await self._server.handler(request)
        except asyncio.CancelledError:
            self._transport.abort()
            raise
        except Exception:
            traceback.print_exc()
            response = Response(500, b"500 Internal Server Error")
        self.task = None
        if self._transport.is_closing():
            return
        keep = request.keep_alive and not self._finishing
        head = _build_head(response.status, response.content_type, keep)
        body = b"" if request.method == "HEAD" else response.body
        date = _format_date(int(time.time()))
        self._transport.write(b"%s%d\r\nDate: %s\r\n\r\n%s" % (head, len(response.body), date, body))
        if not keep:
            self._transport.close()
        elif self._waiting_requests:
            self.task = self._loop.create_task(self._respond(self._waiting_requests.popleft()))
            if self._paused:
                self._paused = False
                self._transport.resume_reading()

    def _refuse(self, status: int) -> None:
        if self.task is None:
            text = HTTPStatus(status).phrase.encode()
            head = _build_head(status, "text/plain; charset=utf-8", False)
            self._transport.write(b"%s%d\r\n\r\n%s" % (head, len(text), text))
        self._transport.close()

    def finish(self) -> None:
        """Close the connection once the current request has been answered."""
        self._finishing = True
        if self.task is None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()


class _TooLargeError(Exception):
    """A request exceeds the size limit."""


@functools.lru_cache(maxsize=64)
def _build_head(status: int, content_type: str, keep: bool) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    closing = "" if keep else "Connection: close\r\n"
    return f"HTTP/1.1 {status} {phrase}\r\n{closing}Content-Type: {content_type}\r\nContent-Length: ".encode("latin-1")


@functools.lru_cache(maxsize=1024)
def _decode_path(raw: str) -> str:
    return unquote(raw)


@functools.lru_cache(maxsize=2)
def _format_date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()
