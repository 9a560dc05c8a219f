"""Context of the steps of an operation: their service, and one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context

from faultset.collector.runtime.environment import CpuAccount, WatchedText, mounted
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.http.status import RpcError
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import Log, Metrics
from faultset.collector.runtime.stores.driver import StoreClient, StoreError
from faultset.collector.runtime.tracing import Tracing, fail
from faultset.collector.spec.app import AppSpec
from faultset.collector.spec.features.behaviour import FlagSettings, values_in

Ask = Callable[[str, str], Awaitable[Any]]
"""Calls an operation of a service without a span."""


class FlagValues:
    """The values of an application's flags: those of the spec until a file or a provider says otherwise.

    Parameters
    ----------
    report
        Called with a sentence when the file has changed or cannot be understood. It names no flag: the originals'
        logs do not say either which one was switched.
    """

    def __init__(self, settings: FlagSettings | None, report: Callable[[str], None] = lambda line: None):
        self._defaults = {} if settings is None else settings.defaults()
        self._current: dict[str, Any] = dict(self._defaults)
        self._file = None if settings is None else WatchedText(mounted(settings.path))
        self._seen: str | None = None
        self._report = report

    def value(self, name: str) -> Any:
        """Return the value of a flag."""
        return self._current.get(name, self._defaults.get(name))

    def all(self) -> dict[str, Any]:
        """Return the values of all flags."""
        return {**self._defaults, **self._current}

    def replace(self, values: Mapping[str, Any]) -> None:
        """Take over values."""
        self._current = dict(values)

    def read_file(self) -> None:
        """Take over the values of the file if it has changed; one that is missing or wrong changes nothing."""
        text = None if self._file is None else self._file.read()
        if text is None or text == self._seen:
            return
        first, self._seen = self._seen is None, text
        try:
            self.replace(values_in(text))
        except ValueError as error:
            self._report(f"the file of flags cannot be understood and changes nothing: {error}")
        else:
            if not first:
                self._report("the file of flags has changed and was read again")


async def follow_flags(app: AppSpec, service: str, values: FlagValues, ask: Ask) -> None:
    """Keep the values up to date for ever: from the file, or from the provider if the application has one."""
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
                answer = await ask(settings.provider, settings.operation)
                if isinstance(answer, Mapping):
                    values.replace(answer)
            except RpcError:
                pass  # the last value holds, as in clients of flagd that cache
        await asyncio.sleep(settings.poll_s)


DocumentIndex = dict[str, dict[str, Any]]
"""Documents by key."""


@dataclass(kw_only=True)
class RequestContext:
    """State of one request.

    Attributes
    ----------
    values
        The request's fields and what steps have saved; `$name` in a spec reads them.
    trace
        Context under which client spans are made.
    reply
        What the operation answers, once a step has said it.
    deadline
        Instant of the event loop's clock at which it is given up; none without.
    notes
        Other results of steps for later steps, by keyword.
    """

    values: dict[str, Any]
    trace: Context
    reply: Any = None
    deadline: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServiceContext:
    """Context that the steps of one service share; `indexes` is filled before the first request."""

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
        """Make a client span around a command of a store; none without a name."""
        if name is None:
            yield
            return
        attributes = {"db.system": self.stores[store].driver.system, "peer.service": store}
        span = self.tracing.client(name, request.trace, attributes)
        try:
            yield
        except StoreError as error:
            if self.persona.spans.tell_outcome:
                fail(span, str(error))
            raise
        finally:
            span.end()


StepHandler = Callable[[RequestContext], Awaitable[None] | None]
"""Carries out one step of one request."""
