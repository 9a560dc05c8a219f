"""The HTTP load driver, and control of the load over HTTP."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote, urlencode, urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from faultset.collector.ipc.channel import decode, encode
from faultset.collector.load.driver import LoadTarget, RequestResult
from faultset.collector.load.episode_load import BeginLoad, ChangeLoad, EpisodeLoad
from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient, Names, host_and_port
from faultset.core.errors import FaultsetError

_IN_PATHS = "/%?=&;:@+,$!*'()"
"""Characters of a path and its query that are not percent-encoded."""


class HttpDriver:
    """A `LoadDriver` for HTTP that reuses connections for a short time and does not follow redirects."""

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
        head, body = self._encode(request)
        try:
            async with asyncio.timeout(self._timeout_s if request.patience_s is None else request.patience_s):
                status, _ = await self._client.request(self._host, self._port, head, body)
        except TimeoutError:
            return RequestResult("timeout")
        except DialError as error:
            return RequestResult("timeout" if isinstance(error.error, TimeoutError) else "refused")
        except BrokenError:
            return RequestResult("refused")
        return RequestResult("ok" if status < 400 else "http_error", status)

    def _encode(self, request: ScheduledRequest) -> tuple[bytes, bytes]:
        path, content_type, body = f"{self._path}{quote(request.path, safe=_IN_PATHS)}", "", b""
        if request.body == "json":
            content_type, body = "application/json", json.dumps(request.parameters).encode()
        elif request.body == "form":
            content_type, body = "application/x-www-form-urlencoded", urlencode(request.parameters).encode()
        elif request.parameters:
            path += f"{'&' if '?' in path else '?'}{urlencode(request.parameters)}"
        body_headers = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if content_type else ""
        return f"{request.method} {path} HTTP/1.1\r\n{self._headers}{body_headers}\r\n".encode(), body

    async def close(self) -> None:
        self._client.close()


LOAD_PORT = 9466
_JSON_TYPE = "application/json"


async def serve_http(port: int, load: EpisodeLoad) -> web.AppRunner:
    """Serve requests that control a load, on all addresses.

    The routes are `POST /begin` with a BeginLoad, `GET /results?offset=`, `GET /stats`, `POST /step` with a ChangeLoad,
    and `POST /stop`.
    """

    async def begin(request: web.Request) -> web.Response:
        return _json_response(encode(load.begin(decode(BeginLoad, await request.read()))))

    async def read(request: web.Request) -> web.Response:
        return web.Response(body=load.results_from(int(request.query.get("offset", 0))))

    async def stats(request: web.Request) -> web.Response:
        return _json_response(encode(load.statistics()))

    async def step(request: web.Request) -> web.Response:
        factor = load.change(decode(ChangeLoad, await request.read()))
        return _json_response(encode(ChangeLoad(factor=factor)))

    async def stop(request: web.Request) -> web.Response:
        return _json_response(encode(await load.stop()))

    app = web.Application(middlewares=[_report_errors])
    app.add_routes(
        [
            web.post("/begin", begin),
            web.get("/results", read),
            web.get("/stats", stats),
            web.post("/step", step),
            web.post("/stop", stop),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


def _json_response(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON_TYPE)


@web.middleware
async def _report_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (FaultsetError, ValueError) as error:
        return web.Response(text=str(error), status=400)
