"""What the steps of an operation can use: of their service, and of one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context

from faultset.collector.runtime.cpu_time import CpuAccount
from faultset.collector.runtime.flags import FlagValues
from faultset.collector.runtime.http.caller import Caller
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals.logs import Log
from faultset.collector.runtime.signals.metrics import Metrics
from faultset.collector.runtime.signals.tracing import Tracing, fail
from faultset.collector.runtime.stores.driver import StoreClient, StoreError

DocumentIndex = dict[str, dict[str, Any]]
"""Documents by key."""


@dataclass(kw_only=True)
class RequestContext:
    """What one request knows so far.

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
        What steps leave for later ones beside the values, by keyword.
    """

    values: dict[str, Any]
    trace: Context
    reply: Any = None
    deadline: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServiceContext:
    """What the steps of one service can use; `indexes` is filled before the first request."""

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
