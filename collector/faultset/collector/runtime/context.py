"""Contexts in which steps run: one for the service and one for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from faultset.collector.runtime.environment import CpuAccount, WatchedText, find_mount
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import RpcError
from faultset.collector.runtime.http.tracing import Span, Tracing
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.stores.driver import StoreClient, StoreError
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features import FlagSettings, values_in

CallOperation = Callable[[str, str], Awaitable[Any]]
"""Function that calls an operation of a service, without a span."""


class FlagValues:
    """The values of an application's flags; a file or a provider replaces the values of the spec.

    `report` is called with a sentence when the file changes or cannot be parsed. Like the original programs' logs, the
    sentence does not name the flag that changed.
    """

    def __init__(self, settings: FlagSettings | None, report: Callable[[str], None] = lambda line: None):
        self._defaults = {} if settings is None else settings.defaults()
        self._current: dict[str, Any] = dict(self._defaults)
        self._file = None if settings is None else WatchedText(find_mount(settings.path))
        self._last_text: str | None = None
        self._report = report

    def value(self, name: str) -> Any:
        return self._current.get(name, self._defaults.get(name))

    def all(self) -> dict[str, Any]:
        return {**self._defaults, **self._current}

    def replace(self, values: Mapping[str, Any]) -> None:
        self._current = dict(values)

    def read_file(self) -> None:
        """Read the file if it has changed; a missing or invalid file changes nothing."""
        text = None if self._file is None else self._file.read()
        if text is None or text == self._last_text:
            return
        first, self._last_text = self._last_text is None, text
        try:
            self.replace(values_in(text))
        except ValueError as error:
            self._report(f"the flag file is invalid, keeping the previous values: {error}")
        else:
            if not first:
                self._report("the flag file has changed and was read again")


async def follow_flags(app: AppSpec, service: str, values: FlagValues, call: CallOperation) -> None:
    """Update the values forever, from the file or from the application's provider."""
    settings = app.flags
    if settings is None:
        return
    while True:
        if settings.provider in (None, service):
            values.read_file()
        else:
            assert settings.provider is not None
            assert settings.operation is not None
            try:
                flags = await call(settings.provider, settings.operation)
                if isinstance(flags, Mapping):
                    values.replace(flags)
            except RpcError:
                pass  # keep the last values, like caching clients of flagd
        await asyncio.sleep(settings.poll_s)


DocumentIndex = dict[str, dict[str, Any]]
"""Documents by key."""


@dataclass(kw_only=True)
class RequestContext:
    """State of one request."""

    values: dict[str, Any]
    """Fields of the request and values that steps have saved; `$name` in a spec reads them."""
    trace: Span | None
    """Span of the request, the parent of its client spans; None without one."""
    reply: Any = None
    """The response, once a step has set it."""
    deadline: float | None = None
    """Time of the event loop's clock at which the request is abandoned; None for never."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Other results that steps keep for later steps, by keyword."""


@dataclass(frozen=True, kw_only=True)
class ServiceContext:
    """State that the steps of one service share; `indexes` is filled before the first request."""

    caller: Caller
    stores: Mapping[str, StoreClient]
    indexes: dict[str, DocumentIndex]
    log: Log
    tracing: Tracing
    persona: Persona
    metrics: Metrics
    flags: FlagValues
    cpu: CpuAccount = field(default_factory=CpuAccount)

    @contextmanager
    def store_span(self, request: RequestContext, store: str, name: str | None) -> Iterator[None]:
        """Wrap a command of a store in a client span, unless the name is None."""
        if name is None:
            yield
            return
        attributes = {"db.system": self.stores[store].driver.system, "peer.service": store}
        span = self.tracing.client(name, request.trace, attributes)
        try:
            yield
        except StoreError as error:
            if self.persona.spans.reports_outcome:
                span.fail(str(error))
            raise
        finally:
            span.end()


StepHandler = Callable[[RequestContext], Awaitable[None] | None]
"""Function that runs one step of a request."""
