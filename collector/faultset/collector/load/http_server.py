"""The load's results and requests to it over HTTP, for a load that runs in a pod."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from faultset.collector.ipc.messages import InvalidMessage, decode, encode
from faultset.collector.load.generator import Generator
from faultset.collector.load.messages import ChangeLoad, LoadStatistics, StopLoad

LOAD_PORT = 9466
_JSON = "application/json"


async def serve_http(
    port: int, results: Path, generator: Generator, stop: Callable[[StopLoad], Awaitable[LoadStatistics]]
) -> web.AppRunner:
    """Serve `GET /results?offset=`, `GET /stats`, `POST /step` with a ChangeLoad and `POST /stop` on all addresses."""

    async def read(request: web.Request) -> web.Response:
        with results.open("rb") as file:
            file.seek(int(request.query.get("offset", 0)))
            return web.Response(body=file.read())

    async def stats(request: web.Request) -> web.Response:
        return web.Response(body=encode(generator.statistics()), content_type=_JSON)

    async def step(request: web.Request) -> web.Response:
        try:
            factor = generator.change(decode(ChangeLoad, await request.read()))
        except (InvalidMessage, ValueError) as error:
            return web.Response(text=str(error), status=400)
        return web.Response(body=encode(ChangeLoad(factor=factor)), content_type=_JSON)

    async def end(request: web.Request) -> web.Response:
        return web.Response(body=encode(await stop(StopLoad())), content_type=_JSON)

    app = web.Application()
    app.add_routes(
        [web.get("/results", read), web.get("/stats", stats), web.post("/step", step), web.post("/stop", end)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner
