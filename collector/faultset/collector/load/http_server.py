"""The load's results and requests to it over HTTP, for a load that runs in a pod."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from faultset.collector.ipc.channel import decode, encode
from faultset.collector.load.episode_load import EpisodeLoad
from faultset.collector.load.messages import BeginLoad, ChangeLoad
from faultset.core.errors import FaultsetError

LOAD_PORT = 9466
_JSON = "application/json"


async def serve_http(port: int, load: EpisodeLoad) -> web.AppRunner:
    """Serve a load on all addresses.

    `POST /begin` with a BeginLoad, `GET /results?offset=`, `GET /stats`, `POST /step` with a ChangeLoad, `POST /stop`.
    """

    async def begin(request: web.Request) -> web.Response:
        return _json(encode(load.begin(decode(BeginLoad, await request.read()))))

    async def read(request: web.Request) -> web.Response:
        return web.Response(body=load.results_from(int(request.query.get("offset", 0))))

    async def stats(request: web.Request) -> web.Response:
        return _json(encode(load.statistics()))

    async def step(request: web.Request) -> web.Response:
        factor = load.change(decode(ChangeLoad, await request.read()))
        return _json(encode(ChangeLoad(factor=factor)))

    async def stop(request: web.Request) -> web.Response:
        return _json(encode(await load.stop()))

    app = web.Application(middlewares=[_refusals])
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


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON)


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except (FaultsetError, ValueError) as error:
        return web.Response(text=str(error), status=400)
