"""Requests over HTTP."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote, urlencode, urlsplit

from faultset.collector.load.driver import LoadTarget, RequestResult
from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient, Names, host_and_port

_IN_PATHS = "/%?=&;:@+,$!*'()"
"""Characters of paths, and of queries in them, that are sent as they are."""


class HttpDriver:
    """See `LoadDriver`; connections are reused, but not for long, and redirections are answers like others."""

    def __init__(self, target: LoadTarget):
        url = urlsplit(target.url)
        self._host, self._port = host_and_port(url)
        self._path = url.path.rstrip("/")
        self._headers = f"Host: {url.netloc}\r\nAccept: */*\r\nUser-Agent: faultset\r\n"
        self._timeout_s = target.timeout_s
        self._client = HttpClient(
            local=target.local_address,
            names=Names(None),
            dial_timeout_s=target.timeout_s,
            encrypted=url.scheme == "https",
        )

    async def send(self, request: ScheduledRequest) -> RequestResult:
        """Send a request and read the whole answer."""
        head, body = self._encode(request)
        try:
            async with asyncio.timeout(self._timeout_s):
                status, _ = await self._client.request(self._host, self._port, head, body)
        except TimeoutError:
            return RequestResult("timeout")
        except DialError as failed:
            return RequestResult("timeout" if isinstance(failed.error, TimeoutError) else "refused")
        except BrokenError:
            return RequestResult("refused")
        return RequestResult("ok" if status < 400 else "http_error", status)

    def _encode(self, request: ScheduledRequest) -> tuple[bytes, bytes]:
        """Return the head of a request with the empty line at its end, and its body."""
        path, kind, body = f"{self._path}{quote(request.path, safe=_IN_PATHS)}", "", b""
        if request.body == "json":
            kind, body = "application/json", json.dumps(request.parameters).encode()
        elif request.body == "form":
            kind, body = "application/x-www-form-urlencoded", urlencode(request.parameters).encode()
        elif request.parameters:
            path += f"{'&' if '?' in path else '?'}{urlencode(request.parameters)}"
        told = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if kind else ""
        return f"{request.method} {path} HTTP/1.1\r\n{self._headers}{told}\r\n".encode(), body

    async def close(self) -> None:
        """Close connections."""
        self._client.close()
