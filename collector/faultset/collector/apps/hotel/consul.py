"""A substitute for Consul: it must be up when a service starts, but routes nothing."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient
from faultset.collector.runtime.http.server import HttpRequest, HttpServer, Response
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.persona import Registration, RegistrationError
from faultset.collector.runtime.signals import timestamp, write_all

START_TIMEOUT_S = 10.0
"""Seconds that a starting service waits for Consul, so that everything can start at once."""

_REDIAL_S, _DRAIN_S = 0.1, 3.0
_DIAL_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 15.0
_JSON_TYPE = "application/json; charset=utf-8"
_REGISTER_PATH = "/v1/agent/service/register"


async def register(registration: Registration, texts: ErrorTexts) -> None:
    """Register a service; raise RegistrationError if Consul does not respond in time."""
    service, registry = registration.service, registration.app.registry
    assert registry is not None
    port = registration.app.services[registry].port
    entry = {
        "ID": registration.identity,
        "Name": service.registry_name,
        "Address": registration.address,
        "Port": service.port,
    }
    deadline = time.monotonic() + START_TIMEOUT_S
    body = json.dumps(entry).encode()
    while True:
        reason = await _put(registry, port, body, registration, texts)
        if reason is None:
            return
        if time.monotonic() > deadline:
            raise RegistrationError(f'Put "http://{registry}:{port}{_REGISTER_PATH}": {reason}')
        await asyncio.sleep(_REDIAL_S)


async def _put(host: str, port: int, body: bytes, registration: Registration, texts: ErrorTexts) -> str | None:
    names = registration.names
    client = HttpClient(local=registration.local_address, names=names, dial_timeout_s=_DIAL_TIMEOUT_S)
    head = f"PUT {_REGISTER_PATH} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            response = await client.request(host, port, head, body)
        return None if response.status == 200 else f"Unexpected response code: {response.status}"
    except DialError as error:
        return texts.connection_failed(error.error, f"{names.last.get(host, host)}:{port}")
    except BrokenError:
        return "EOF"
    except TimeoutError:
        return "i/o timeout"
    finally:
        client.close()


async def serve(*, host: str, port: int, stop: asyncio.Event) -> None:
    """Serve until stopped."""
    services: dict[str, dict[str, Any]] = {}

    def log(message: str) -> None:
        write_all(1, f"{timestamp(time.time())} [INFO]  {message}\n".encode())

    async def handle(request: HttpRequest) -> Response:
        path = request.path
        if request.method == "PUT" and path == _REGISTER_PATH:
            entry = json.loads(request.body)
            services[entry["ID"]] = entry
            log(f"agent: Synced service: service={entry['ID']}")
            return Response(200)
        documents = {
            "/v1/agent/services": services,
            "/v1/catalog/services": {name: [] for name in sorted({entry["Name"] for entry in services.values()})},
            "/v1/status/leader": f"{host}:8300",
        }
        if path in documents:
            return Response(200, json.dumps(documents[path]).encode(), _JSON_TYPE)
        return Response(404, f"Invalid URL path: {path}".encode())

    log("agent: Starting agent")
    server = HttpServer(handle)
    await server.listen(host, port)
    log(f"agent: Started HTTP server: address={host}:{port} network=tcp")
    log(f"agent.server: cluster leadership acquired: node={os.environ.get('POD_NAME', 'server')}")
    log("agent: Consul agent running!")
    await stop.wait()
    log("agent: Gracefully shutting down agent...")
    await server.close(_DRAIN_S)
    log("agent: Exit code: code=0")
