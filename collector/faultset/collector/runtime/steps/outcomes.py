"""Steps that fail on purpose, wait, or write a line."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.signals.tracing import ids_of, span_of
from faultset.collector.runtime.steps.step import Step
from faultset.collector.runtime.steps.values import check_template, text_of

Template = Annotated[str, AfterValidator(check_template)]

_LONGEST_WAIT_S = 3600.0


class Fail(Step):
    """Fail the request."""

    keyword = "fail"
    code: Literal["unknown", "invalid_argument", "not_found", "failed_precondition", "internal", "unavailable"] = (
        "internal"
    )
    """Code of the failure, one of gRPC's."""
    message: Template
    """Its description; `{a.b}` stands for the value `$a.b`."""
    log: Template | None = None
    """Line at level error that is logged; none when left out."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that fails."""
        message, line = text_of(self.message), None if self.log is None else text_of(self.log)
        code = Code[self.code.upper()]

        def handle(request: RequestContext) -> None:
            if line is not None:
                service.log.error(location, f"{line(request.values)} {ids_of(span_of(request.trace))}")
            raise RpcError(code, message(request.values))

        return handle


class Wait(Step):
    """Wait, without using the processor."""

    keyword = "wait"
    seconds: Any = 0
    """How long; nothing, or what is no number, is no wait. An hour at most."""
    milliseconds: Any = 0
    """The same in milliseconds; what both say is added."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that waits."""
        seconds_of, milliseconds_of = getter(self.seconds), getter(self.milliseconds)

        async def handle(request: RequestContext) -> None:
            wait_s = number(seconds_of(request.values)) + number(milliseconds_of(request.values)) / 1000
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))

        return handle


class WriteLine(Step):
    """Write a line, with the ids of the request's span."""

    keyword = "log"
    text: Template
    """The line; `{a.b}` stands for the value `$a.b`."""
    level: Literal["trace", "info", "warning", "error"] = "info"
    """Its level; lines at `trace` are left out when the application logs at `info`."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that writes."""
        text = text_of(self.text)

        def handle(request: RequestContext) -> None:
            service.log.write(self.level, location, f"{text(request.values)} {ids_of(span_of(request.trace))}")

        return handle
