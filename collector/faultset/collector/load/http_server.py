"""The load's results and verbs over HTTP, for a load that runs in a pod."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from faultset.collector.load.generator import Generator

LOAD_PORT = 9466


async def serve_http(
    port: int, results: Path, generator: Generator, stop: Callable[[], Awaitable[dict[str, float]]]
) -> web.AppRunner:
    """Serve `GET /results?offset=`, `GET /stats`, `POST /step?factor=` and `POST /stop` on all addresses."""

    async def read(request: web.Request) -> web.Response:
        with results.open("rb") as file:
            file.seek(int(request.query.get("offset", 0)))
            return web.Response(body=file.read())

    async def stats(request: web.Request) -> web.Response:
        return web.json_response({**generator.stats(), "time_ns": time.time_ns()})

    async def step(request: web.Request) -> web.Response:
        return web.json_response({"factor": generator.step(float(request.query["factor"]))})

    async def end(request: web.Request) -> web.Response:
        return web.json_response(await stop())

    app = web.Application()
    app.add_routes(
        [web.get("/results", read), web.get("/stats", stats), web.post("/step", step), web.post("/stop", end)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner
