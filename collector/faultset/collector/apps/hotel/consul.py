"""A stand-in for Consul: a process that must be up when a service starts, and by which nothing is routed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import Any

import aiohttp
from aiohttp import web

from faultset.collector.runtime.http.error_texts import ErrorTexts
from faultset.collector.runtime.persona import Registration, RegistrationError
from faultset.collector.runtime.signals.logs import timestamp, write_all

START_TIMEOUT_S = 10.0
"""How long a starting service waits for Consul, so that a deployment may start everything at once."""

_REDIAL_S = 0.1
_PATH = "/v1/agent/service/register"


async def register(registration: Registration, texts: ErrorTexts) -> None:
    """Announce a service; raise RegistrationError when Consul is not there in time."""
    service, registry = registration.service, registration.app.registry
    assert registry is not None
    address = f"{registry}:{registration.app.services[registry].port}"
    entry = {
        "ID": registration.identity,
        "Name": service.registry_name,
        "Address": registration.address,
        "Port": service.port,
    }
    deadline = time.monotonic() + START_TIMEOUT_S
    url = f"http://{address}{_PATH}"
    while True:
        reason = await _put(url, entry, registration, texts)
        if reason is None:
            return
        if time.monotonic() > deadline:
            raise RegistrationError(f'Put "{url}": {reason}')
        await asyncio.sleep(_REDIAL_S)


async def _put(url: str, entry: dict[str, Any], registration: Registration, texts: ErrorTexts) -> str | None:
    local, names = registration.local_address, registration.names
    connector = aiohttp.TCPConnector(
        local_addr=(local, 0) if local else None, resolver=names, use_dns_cache=False, happy_eyeballs_delay=None
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=10.0)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.put(url, data=json.dumps(entry).encode()) as response,
        ):
            return None if response.status == 200 else f"Unexpected response code: {response.status}"
    except aiohttp.ClientConnectorError as error:
        return texts.connection_failed(error.os_error, f"{names.last.get(error.host, error.host)}:{error.port}")
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        return str(error) or "i/o timeout"


async def serve(*, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve until stopped."""
    services: dict[str, dict[str, Any]] = {}

    def log(message: str) -> None:
        write_all(1, f"{timestamp(time.time())} [INFO]  {message}\n".encode())

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if request.method == "PUT" and path == _PATH:
            entry = json.loads(await request.read())
            services[entry["ID"]] = entry
            log(f"agent: Synced service: service={entry['ID']}")
            return web.Response()
        if path == "/v1/agent/services":
            return web.json_response(services)
        if path == "/v1/catalog/services":
            return web.json_response({name: [] for name in sorted({entry["Name"] for entry in services.values()})})
        if path == "/v1/status/leader":
            return web.json_response(f"{host}:8300")
        return web.Response(status=404, text=f"Invalid URL path: {path}")

    log("agent: Starting agent")
    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    log(f"agent: Started HTTP server: address={host}:{port} network=tcp")
    log(f"agent.server: cluster leadership acquired: node={os.environ.get('POD_NAME', 'server')}")
    log("agent: Consul agent running!")
    await stop.wait()
    log("agent: Gracefully shutting down agent...")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(3.0):
            await runner.cleanup()
    log("agent: Exit code: code=0")
