"""Pooled connections."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from faultset.collector.load.http_connections import Connections


def test_connections_take_no_new_request_past_their_age() -> None:
    async def ask() -> list[int]:
        ports: list[int] = []

        async def handle(request: web.BaseRequest) -> web.Response:
            assert request.transport is not None
            ports.append(request.transport.get_extra_info("peername")[1])
            return web.Response()

        runner = web.ServerRunner(web.Server(handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        pool = Connections(local="127.0.0.6", timeout=aiohttp.ClientTimeout(), max_age_s=60.0)

        async def get() -> None:
            async with pool.session() as session, session.get(f"http://127.0.0.1:{port}/") as response:
                await response.read()

        pool._current.born = asyncio.get_running_loop().time()
        await get()
        await get()
        pool._current.born -= 61.0
        await get()
        await pool.close()
        await runner.cleanup()
        return ports

    first, second, third = asyncio.run(ask())
    assert first == second
    assert second != third
