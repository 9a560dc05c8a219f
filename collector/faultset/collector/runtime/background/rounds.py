"""One round of work in the background: a span, a line, CPU time, the steps, and what becomes of a failure."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span

from faultset.collector.runtime.context import RequestContext, ServiceContext
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.signals.tracing import fail, ids_of
from faultset.collector.runtime.steps.step import compile_steps
from faultset.collector.spec.features.background import BackgroundWork

Started = tuple[Span, Context]
"""A span and the context under which its children are made."""

Round = Callable[[dict[str, Any], Started | None], Awaitable[bool]]
"""Carries out one round with values under a span, ends the span, and says whether the steps went well."""


def compile_round(name: str, work: BackgroundWork, service: ServiceContext) -> Round:
    """Return the function that carries out one round of a consumer or task.

    Parameters
    ----------
    name
        Its name, which log lines show where the spec gives no location.
    """
    location = work.location or name
    steps = compile_steps(work.steps, service, location)

    async def attempt(values: dict[str, Any], context: Context) -> str | None:
        """Carry out the steps; return why they failed."""
        try:
            if work.work_ms:
                service.cpu.work(work.work_ms)
            await steps(RequestContext(values=values, trace=context))
        except (RpcError, BadRequest) as error:
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return str(error) or type(error).__name__
        return None

    async def run(values: dict[str, Any], started: Started | None) -> bool:
        span, context = started or (None, Context())
        if work.log:
            service.log.trace(location, work.log if span is None else f"{work.log} {ids_of(span)}")
        try:
            failure = await attempt(values, context)
            if failure is not None:
                service.log.error(location, f"{name} failed: {failure}")
                if span is not None and service.persona.spans.tell_outcome:
                    fail(span, failure)
            return failure is None
        finally:
            if span is not None:
                span.end()

    return run
