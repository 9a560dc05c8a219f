"""The interface of load drivers, which send requests to the application's entry.

The schedule decides the times and contents of requests; a driver sends them over its protocol. A package
registers drivers in the entry-point group `faultset.load_drivers`; a spec selects one with `load: {driver: NAME}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from faultset.collector.load.results import NONE
from faultset.collector.load.schedule import ScheduledRequest
from faultset.collector.spec.app import AppSpec
from faultset.core.plugins import load_plugin, require_class

GROUP = "faultset.load_drivers"


@dataclass(frozen=True, kw_only=True)
class LoadTarget:
    """Address and options for a load driver."""

    url: str
    """Base URL of the entry, `http://ADDRESS:PORT`."""
    local_address: str | None
    """Address to send from; None for any."""
    timeout_s: float
    """How long a client waits for a response; a request that took longer has the outcome `timeout`."""
    options: Mapping[str, Any]
    """The value of `load: {options: ...}` in the spec."""


class RequestResult(NamedTuple):
    """How a request ended: `ok`, `http_error` (the response is an error), `refused` or `timeout`."""

    outcome: str
    status: int = NONE


class LoadDriver(Protocol):
    """Sends requests to one target. Its class is a `LoadDriverClass`."""

    async def send(self, request: ScheduledRequest) -> RequestResult:
        """Send a request and wait for the response; must not raise. Calls are concurrent and may be cancelled."""
        ...

    async def close(self) -> None: ...


LoadDriverClass = Callable[[LoadTarget], LoadDriver]
"""Called once inside a running event loop, with the target as the only argument."""


def driver_class(app: AppSpec) -> LoadDriverClass:
    """Return the class of an application's load driver; raise UsageError if it is unknown or not a driver."""
    return load_plugin(GROUP, app.load.driver, kind="load driver", accept=_check_class)


def _check_class(name: str, loaded: Any) -> LoadDriverClass:
    require_class(loaded, "send", "close")
    return loaded
