"""The persona of SocialNetwork's services: C++ programs with Thrift and Boost.Log behind an nginx that runs Lua.

Messages, with their spelling, and file names are the same as in the original.
"""

from __future__ import annotations

import itertools
import os
import time
from types import MappingProxyType

from faultset.collector.runtime.http.client import UnknownHostError
from faultset.collector.runtime.http.status import FailedDial, RpcError, SpanStyle
from faultset.collector.runtime.persona import Event, Line, Persona
from faultset.collector.runtime.signals import Level
from faultset.collector.spec.app import ServiceSpec

_THRIFT = "thrift"
"""Location of the log lines of the Thrift library."""

_POOL_AGE_S = 10.0
"""Age at which the pools of Thrift clients (`keepalive_ms`) and of the Lua scripts close a connection."""

_POOL_NAMES = {
    "post-storage-service": "post-storage-client",
    "user-timeline-service": "user-timeline-client",
    "url-shorten-service": "url-shorten-service",
    "user-mention-service": "user-mention-service",
    "social-graph-service": "social-graph-client",
}
"""Names of client pools that are not named after their service."""

_NGINX_LEVELS: dict[Level, str] = {
    "trace": "debug", "info": "info", "warning": "warn", "error": "error", "fatal": "emerg", "panic": "emerg",
}  # fmt: skip

_LINES: dict[Event, tuple[Line, ...]] = {
    "login-failed": (
        Line("error", "utils_mongodb.h:74:CreateIndex", "Error in createIndexes: {error}"),
        Line("error", "{location}:56:main", "Failed to create mongodb index, try again"),
    ),
    "filling-failed": (
        Line("error", "utils_mongodb.h:74:CreateIndex", "Error in createIndexes: {error}"),
        Line("error", "{location}:56:main", "Failed to create mongodb index, try again"),
    ),
    "serving": (Line("info", "{location}:82:main", "Starting the {service} server..."),),
    "port-taken": (Line("fatal", "{location}:82:main", "Could not bind to port {taken_port}: {error}"),),
}


class SocialPersona(Persona):
    """Lines in the formats of Boost.Log, Thrift and nginx's error log; spans without a status."""

    lines = MappingProxyType(_LINES)
    spans = SpanStyle(call_component=None, endpoint_component="nginx", reports_outcome=False)
    connection_age_s = _POOL_AGE_S
    login_pause_s = 1.0

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def lines_of_start(self, event: Event, service: ServiceSpec) -> tuple[Line, ...]:
        """Return the lines of a C++ program; nginx starts silently."""
        return () if service.kind == "frontend" and event != "port-taken" else super().lines_of_start(event, service)

    def lines_of_failed_dial(self, dialled: FailedDial, location: str) -> tuple[Line, ...]:
        """Return the lines of Thrift, of the client pool and of the handler; Lua scripts add none."""
        if _is_nginx(location):
            return ()
        reason = self.connection_failed(dialled.error, "")
        pool = _POOL_NAMES.get(dialled.service, f"{dialled.service}-client")
        return (
            Line(
                "error", _THRIFT, f"TSocket::open() connect() <Host: {dialled.service} Port: {dialled.port}>: {reason}"
            ),
            Line("error", "ClientPool.h:117:Pop", f"Failed to connect {pool}"),
            Line("error", location, f"Failed to connect to {dialled.service}"),
        )

    def format_line(self, time_s: float, level: Level, location: str, message: str) -> str:
        moment = time.gmtime(time_s)
        if _is_nginx(location):
            source = f"[lua] {location}" if ".lua" in location else location
            number = f"{os.getpid()}#{os.getpid()}: *{next(self._numbers)}"
            return f"{time.strftime('%Y/%m/%d %H:%M:%S', moment)} [{_NGINX_LEVELS[level]}] {number} {source}: {message}"
        if location == _THRIFT:
            return f"Thrift: {time.asctime(moment)} {message}"
        name = "fatal" if level == "panic" else level
        stamp = f"{time.strftime('%Y-%b-%d %H:%M:%S', moment)}.{int(time_s * 1_000_000) % 1_000_000:06d}"
        return f"[{stamp}] <{name}>: ({location}) {message}"

    def format_failure(self, error: RpcError) -> str:
        """Return only the text, because Thrift has no codes."""
        return error.description

    def connection_failed(self, error: BaseException | None, address: str) -> str:
        match error:
            case UnknownHostError():
                return "Could not resolve host for client socket."
            case ConnectionRefusedError():
                return "Connection refused"
            case TimeoutError():
                return "Connection timed out"
            case OSError(errno=int() as number) if number:
                return os.strerror(number)
            case _:
                return str(error)

    def dial_failed(self, service: str, reason: str) -> str:
        """Return the message of the exception that a user of the pool throws."""
        return f"Failed to connect to {service}"

    def call_failed(self, reason: str | None) -> str:
        return reason or "No more data to read."

    def connection_closed(self) -> str:
        return "Server closed the connection"

    def read_timed_out(self, source: str, address: str) -> str:
        return "Resource temporarily unavailable"

    def unknown_operation(self, operation: str) -> str:
        return f"Invalid method name: '{operation.rpartition('/')[2]}'"


def _is_nginx(location: str) -> bool:
    return ".lua" in location or location.startswith("/")


PERSONA = SocialPersona()
