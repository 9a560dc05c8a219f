"""Operations of a service, made from the steps of its spec."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.caller import earliest, now, within
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.spec.app import Operation


@dataclass(frozen=True, kw_only=True)
class ServedOperation:
    """One operation as the server sees it.

    Attributes
    ----------
    run
        Carries it out and returns its reply.
    log
        Text of the line that every request writes.
    location
        Place in the modelled source that log lines name.
    span
        Name of the server's span, where the spec gives one.
    observed
        Whether requests leave a span and a line.
    """

    run: Callable[[RequestContext], Awaitable[Any]]
    log: str
    location: str
    span: str | None = None
    observed: bool = True


def compile_operation(name: str, operation: Operation, service: ServiceContext) -> ServedOperation:
    """Return an operation, with its steps compiled.

    Parameters
    ----------
    name
        Its RPC or path, which log lines show where the spec gives no text or location.
    """
    location = operation.location or name
    steps = compile_steps(operation.steps, service, location)

    async def run(request: RequestContext) -> Any:
        if operation.deadline_s is not None:
            request.deadline = earliest(request.deadline, now() + operation.deadline_s)
        if operation.work_ms:
            service.cpu.work(operation.work_ms)
        if request.deadline is None:
            await steps(request)
        else:
            async with within(request.deadline, service.persona):
                await steps(request)
        return request.reply

    return ServedOperation(
        run=run, log=operation.log or name, location=location, span=operation.span, observed=operation.observed
    )
