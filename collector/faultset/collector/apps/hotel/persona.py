"""The persona of HotelReservation's services: Go programs that log with zerolog and register with Consul.

Messages, with their misspellings, and line numbers are the same as in the original. Consul itself is a substitute: it
must be up when a service starts, but routes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from faultset.collector.runtime.http.client import BrokenError, DialError, HttpClient
from faultset.collector.runtime.http.server import HttpRequest, HttpServer, Response
from faultset.collector.runtime.http.status import ErrorTexts, GoErrorTexts
from faultset.collector.runtime.persona import Event, Line, Persona, Program, Registration, RegistrationError
from faultset.collector.runtime.signals import Level, timestamp, write_all

START_TIMEOUT_S = 10.0
"""Seconds that a starting service waits for Consul, so that everything can start at once."""

_REDIAL_S, _DRAIN_S = 0.1, 3.0
_DIAL_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 15.0
_JSON_TYPE = "application/json; charset=utf-8"
_REGISTER_PATH = "/v1/agent/service/register"
_PANIC_LOG = """\
panic: {message}

goroutine {goroutine} [running]:
github.com/rs/zerolog.(*Logger).Panic.func1({{0xc000118a80, 0x{size:x}}})
\t/go/pkg/mod/github.com/rs/zerolog/log.go:405 +0x2d
github.com/rs/zerolog.(*Event).msg(0xc0001a2060, {{0xc000118a80, 0x{size:x}}})
\t/go/pkg/mod/github.com/rs/zerolog/event.go:156 +0x2b8
main.main()
\t/workspace/{file} +0x5a5

goroutine 1 [IO wait]:
internal/poll.runtime_pollWait(0x7f2a5c3e8f18, 0x72)
\t/usr/local/go/src/runtime/netpoll.go:234 +0x89
net.(*netFD).accept(0xc000232000)
\t/usr/local/go/src/net/fd_unix.go:172 +0x35
net.(*TCPListener).Accept(0xc00020e0c0)
\t/usr/local/go/src/net/tcpsock.go:262 +0x3d
created by main.main
\t/workspace/{file}
exit status 2
"""


async def register_with_consul(registration: Registration, texts: ErrorTexts) -> None:
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


async def serve_consul(*, host: str, port: int, stop: asyncio.Event) -> None:
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


_LEVELS: dict[Level, str] = {
    "trace": "TRC", "info": "INF", "warning": "WRN", "error": "ERR", "fatal": "FTL", "panic": "PNC",
}  # fmt: skip

_LINES: dict[Event, tuple[Line, ...]] = {
    "starting": (
        Line("info", "{location}:28", "Tune: setGCPercent to 100"),
        Line("info", "{location}:30", "Reading config..."),
    ),
    "opening-store": (
        Line("info", "{location}:37", "Read database URL: {store}:{store_port}"),
        Line("info", "{location}:38", "Initializing DB connection..."),
    ),
    "login-failed": (Line("panic", "{folder}/db.go:24", "{error}"),),
    "store-opened": (
        Line("info", "{folder}/db.go:29", "New session successfull..."),
        Line("info", "{folder}/db.go:31", "Generating test data..."),
    ),
    "filling-failed": (Line("fatal", "{folder}/db.go:46", "{error}"),),
    "store-ready": (Line("info", "{location}:40", "Successfull"),),
    "connecting": (
        Line("info", "{location}:49", "Read target port: {port}"),
        Line("info", "{location}:50", "Read consul address: {registry}"),
        Line("info", "{location}:51", "Read jaeger address: {telemetry}"),
        Line("info", "{location}:59", "Initializing jaeger agent [service name: {service} | host: {telemetry}]..."),
        Line("info", "tracing/tracer.go:39", "Jaeger client: adjusted sample ratio 1.000000"),
        Line("info", "{location}:64", "Jaeger agent initialized"),
        Line("info", "{location}:66", "Initializing consul agent [host: {registry}]..."),
        Line("info", "{location}:71", "Consul agent initialized"),
    ),
    "serving": (Line("info", "{location}:75", "Starting server..."),),
    "index-unreadable": (Line("error", "services/{service}/server.go:58", "{reason}: {error}"),),
    "port-taken": (Line("fatal", "{location}:86", "failed to listen: listen tcp :{taken_port}: bind: {error}"),),
    "registering": (
        Line(
            "info",
            "registry/registry.go:91",
            "Trying to register service [ name: {name}, id: {identity}, address: {address}:{port} ]",
        ),
    ),
    "registration-failed": (Line("fatal", "{location}:92", "failed register: {error}"),),
    "registered": (Line("info", "registry/registry.go:99", "Successfully registered in consul"),),
}


class HotelPersona(GoErrorTexts, Persona):
    """Lines in the shape of zerolog's console writer, and the error messages of Go's net package and of grpc-go."""

    lines = MappingProxyType(_LINES)
    programs: Mapping[str, Program] = MappingProxyType({"consul": serve_consul})

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        return f"{timestamp(time_s)} {_LEVELS[level]} {location} > {message}"

    def format_crash(self, location: str, message: str) -> str:
        return _PANIC_LOG.format(message=message, goroutine=os.getpid() % 400 + 18, size=len(message), file=location)

    def format_list(self, values: Iterable[str]) -> str:
        return f"[{' '.join(values)}]"

    def read_timed_out(self, source: str, address: str) -> str:
        return f"read tcp {source}->{address}: i/o timeout"

    def connection_closed(self) -> str:
        return "EOF"

    async def register(self, registration: Registration) -> None:
        await register_with_consul(registration, self)


PERSONA = HotelPersona()
