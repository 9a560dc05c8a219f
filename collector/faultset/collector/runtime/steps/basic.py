"""Steps that check, call, work and answer."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from pydantic import ConfigDict, Field

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.status import BadRequest
from faultset.collector.runtime.steps.step import Step
from faultset.collector.spec.steps import CalledOperation


class Require(Step):
    """Answer `status` with `message` unless every field is present (and a number, or one of the values)."""

    keyword = "require"
    fields: tuple[str, ...]
    """Names of the request's fields, none of which may be absent or empty."""
    numbers: bool = False
    """Whether the fields must be numbers; they are numbers for the steps that follow."""
    one_of: tuple[str, ...] = ()
    """The values that the fields may have; any when empty."""
    status: int = 400
    """HTTP status of the answer when a field is wrong."""
    message: str
    """Text of the answer when a field is wrong."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that raises BadRequest."""

        def handle(request: RequestContext) -> None:
            for name in self.fields:
                value = request.values.get(name)
                if value in (None, "") or (self.one_of and value not in self.one_of):
                    raise BadRequest(self.status, self.message)
                if self.numbers:
                    try:
                        request.values[name] = float(value)
                    except (TypeError, ValueError):
                        raise BadRequest(self.status, self.message) from None

        return handle


class Call(Step):
    """Call another service; its failure fails the request, and is logged only when `error_log` is given."""

    keyword = "call"
    service: str
    """Name of the service that is called."""
    operation: str
    """The operation of that service, for instance `/Pricing/Offer`."""
    send: dict[str, Any]
    """Fields of the request that is sent."""
    save: str
    """Name under which the reply is kept for later steps."""
    error_log: str | None = None
    """Line at level error that is logged when the call fails."""

    def operations_called(self) -> tuple[CalledOperation, ...]:
        """Return the one operation."""
        return (CalledOperation(self.service, self.operation),)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that calls and saves the reply."""
        send = getter(self.send)

        async def handle(request: RequestContext) -> None:
            try:
                reply = await service.caller.call(self.service, self.operation, send(request.values), request.trace)
            except Exception:
                if self.error_log is not None:
                    service.log.error(location, self.error_log)
                raise
            request.values[self.save] = reply

        return handle


class Work(Step):
    """Burn CPU time, on top of what the operation costs anyway."""

    keyword = "work"
    cpu_ms: float = Field(ge=0.0, allow_inf_nan=False)
    """CPU time in milliseconds."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that burns."""
        return lambda request: burn_cpu(self.cpu_ms)


class Respond(Step):
    """End the operation with this answer (`otherwise`, when `when` is given and empty or false)."""

    keyword = "respond"
    json_: Any
    """The answer."""
    when: Any = True
    """The answer is `otherwise` when this is empty or false."""
    otherwise: Any = None
    """The other answer."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that sets the reply."""
        when, reply, otherwise = getter(self.when), getter(self.json_), getter(self.otherwise)

        def handle(request: RequestContext) -> None:
            request.reply = (reply if when(request.values) else otherwise)(request.values)

        return handle


def burn_cpu(cpu_ms: float) -> None:
    """Use CPU time of this thread, however long that takes on a busy or throttled machine."""
    end = time.thread_time() + cpu_ms / 1000
    block = bytes(512)
    while time.thread_time() < end:
        block = hashlib.sha512(block).digest() * 8
