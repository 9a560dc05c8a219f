"""The persona of HotelReservation's services: Go programs that log with zerolog and register with Consul.

Texts, with their misspellings, and line numbers are the same as in the original.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from faultset.collector.apps.go_texts import GoErrorTexts
from faultset.collector.apps.hotel import consul
from faultset.collector.runtime.persona import Event, Line, Persona, Program, Registration
from faultset.collector.runtime.signals import Level, timestamp

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


class HotelPersona(GoErrorTexts, Persona):
    """Lines in the shape of zerolog's console writer, and the error texts of Go's net package and of grpc-go."""

    lines = MappingProxyType(_LINES)
    programs: Mapping[str, Program] = MappingProxyType({"consul": consul.serve})

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        """Return a line of the console writer."""
        return f"{timestamp(time_s)} {_LEVELS[level]} {location} > {message}"

    def format_crash(self, location: str, message: str) -> str:
        """Return the dump of a panic."""
        return _PANIC_LOG.format(message=message, goroutine=os.getpid() % 400 + 18, size=len(message), file=location)

    def format_list(self, values: Iterable[str]) -> str:
        """Return a list as Go prints it."""
        return f"[{' '.join(values)}]"

    def read_timed_out(self, source: str, address: str) -> str:
        """Return the text of Go's net package."""
        return f"read tcp {source}->{address}: i/o timeout"

    def connection_closed(self) -> str:
        """Return the text of Go's io package."""
        return "EOF"

    async def register(self, registration: Registration) -> None:
        """Register with Consul."""
        await consul.register(registration, self)


PERSONA = HotelPersona()
