"""Personas: log lines, error messages and start-up behaviour of an application's programs.

`Persona` imitates no particular program. An application that imitates real programs, with their log lines and error
messages, derives from it in the `persona.py` of its folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

from faultset.collector.runtime.http.client import MAX_AGE_S, Names
from faultset.collector.runtime.http.status import ErrorTexts, FailedDial, RpcError, SpanStyle
from faultset.collector.runtime.signals import Level, Log, LogFormat, RequestHistogram
from faultset.collector.spec.app import AppSpec, ServiceSpec

Event = Literal[
    "starting", "setting-missing", "opening-store", "store-opened", "login-failed", "filling-failed", "store-ready",
    "connecting", "serving", "index-unreadable", "port-taken", "registering", "registered", "registration-failed",
]  # fmt: skip
"""Events of a service's start, in order. Events of failures occur only if a step of the start fails."""


class Line(NamedTuple):
    """Template of a log line; the facts of an event fill it in."""

    level: Level
    location: str
    text: str


class RegistrationError(Exception):
    """The application's registry could not be reached."""


class Program(Protocol):
    """A program of an application's code, which serves on an address until `stop` is set."""

    def __call__(self, *, host: str, port: int, stop: asyncio.Event) -> Awaitable[None]:
        """Serve."""
        ...


@dataclass(frozen=True, kw_only=True)
class Registration:
    """Data with which a service registers itself."""

    app: AppSpec
    service: ServiceSpec
    identity: str
    """Unique name of the process."""
    address: str
    """Address that it listens on."""
    local_address: str | None
    """Address that it connects from; None for any."""
    names: Names


_LINES: dict[Event, tuple[Line, ...]] = {
    "starting": (Line("info", "{service}", "starting"),),
    "setting-missing": (Line("fatal", "{service}", "the environment variable {variable} is not set"),),
    "opening-store": (Line("info", "{service}", "connecting to store {store} on port {store_port}"),),
    "login-failed": (Line("fatal", "{service}", "cannot log in to store {store}: {error}"),),
    "filling-failed": (Line("fatal", "{service}", "cannot fill store {store}: {error}"),),
    "store-ready": (Line("info", "{service}", "store {store} is ready"),),
    "index-unreadable": (Line("error", "{service}", "{reason}: {error}"),),
    "port-taken": (Line("fatal", "{service}", "cannot listen on port {taken_port}: {error}"),),
    "registration-failed": (Line("fatal", "{service}", "cannot register with {registry}: {error}"),),
    "serving": (Line("info", "{service}", "serving on port {port}"),),
}


class Persona(ErrorTexts, LogFormat):
    """The neutral persona, and the base of others."""

    lines: Mapping[Event, tuple[Line, ...]] = MappingProxyType(_LINES)
    """Log lines of each event; `{service}`, `{location}` (of the service's spec), `{folder}` (of the location),
    `{port}`, `{registry}` (name and port), `{telemetry}` and the facts of the event are filled in. A line of level
    `fatal` or `panic` ends the process."""
    programs: Mapping[str, Program] = MappingProxyType({})
    """Programs of the application's code, by the name in a service's field `runs`."""
    spans: SpanStyle = SpanStyle()
    """Attributes and status of spans."""
    connection_age_s: float = MAX_AGE_S
    """Age in seconds after which a connection to another service is no longer reused."""
    login_pause_s: float | None = None
    """Pause in seconds before a starting service retries logging in to a database or filling it. None to try once, for
    personas that exit on failure."""
    request_histograms: Mapping[str, RequestHistogram] = MappingProxyType({})
    """Histograms of requests that original programs export, by service."""
    request_level: Level = "trace"
    """Level of the line that a frontend logs for each request."""

    def lines_of_start(self, event: Event, service: ServiceSpec) -> tuple[Line, ...]:
        """Return the templates of an event's lines; by default, from `lines`."""
        return self.lines.get(event, ())

    def lines_of_failed_dial(self, dialled: FailedDial, location: str) -> tuple[Line, ...]:
        """Return the lines about a failed connection, which replace the step's `error_log`."""
        return ()

    def format_failure(self, error: RpcError) -> str:
        """Return the body of a frontend's response to a failed request."""
        return str(error)

    def format_list(self, values: Iterable[str]) -> str:
        """Return a list of keys as text for a log line."""
        return ", ".join(values)

    async def register(self, registration: Registration) -> None:
        """Register a service at the application's registry; raise RegistrationError if that fails.

        The neutral persona supports no registry.
        """
        raise RegistrationError("the application's persona does not implement registration")


class StartLog:
    """Writes a persona's lines about the start of a service, which sends spans to the URL `telemetry`, if given."""

    def __init__(self, persona: Persona, log: Log, app: AppSpec, service: ServiceSpec, telemetry: str | None):
        self._persona, self._service, self._log = persona, service, log
        registry = app.registry
        self._facts = {
            "service": service.name,
            "location": service.location,
            "folder": service.location.rpartition("/")[0],
            "port": service.port,
            "registry": f"{registry}:{app.services[registry].port}" if registry else "none",
            "telemetry": (telemetry or "none").rpartition("//")[2],
        }

    def report(self, event: Event, **facts: object) -> None:
        for line in self._persona.lines_of_start(event, self._service):
            values = {**self._facts, **facts}
            self._log.write(line.level, line.location.format_map(values), line.text.format_map(values))
