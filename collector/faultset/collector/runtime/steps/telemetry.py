"""Steps that make spans, attributes and metrics of the application's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import RpcError
from faultset.collector.runtime.signals.tracing import context_of, fail, span_of
from faultset.collector.runtime.steps.step import Step, compile_steps
from faultset.collector.spec.steps import Place, StepModel, Steps


class OpenSpan(Step):
    """Carry out steps under a span of their own, one of the service's parts."""

    keyword = "span"
    name: str
    """Name of the span."""
    steps: Steps
    """The steps under it; what they save is known to later ones."""

    def inner_steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps under the span."""
        for place, step in enumerate(self.steps):
            yield ("steps", place), step

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that carries the steps out."""
        steps = compile_steps(self.steps, service, location)

        async def handle(request: RequestContext) -> None:
            span = service.tracing.internal(self.name, request.trace)
            inner = replace(request, trace=context_of(span))
            try:
                await steps(inner)
            except RpcError as error:
                if service.persona.spans.tell_outcome:
                    fail(span, str(error))
                raise
            finally:
                request.reply = inner.reply
                span.end()

        return handle


class Annotate(Step):
    """Give attributes to the request's span."""

    keyword = "annotate"
    attributes: dict[str, Any]
    """Values by name; those that are absent are left out."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that sets them."""
        values_of = {name: getter(value) for name, value in self.attributes.items()}

        def handle(request: RequestContext) -> None:
            span = span_of(request.trace)
            for name, value_of in values_of.items():
                value = value_of(request.values)
                if isinstance(value, (str, bool, int, float)):
                    span.set_attribute(name, value)

        return handle


class Count(Step):
    """Count in a metric of the application's own."""

    keyword = "count"
    metric: str = Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")
    """Name of the metric; in Prometheus it ends in `_total`."""
    by: Any = 1
    """By how much; what is no number counts as 0."""
    labels: dict[str, Any] = Field(default_factory=dict)
    """Values of its labels by name, of which there should be few."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that counts."""
        counter = service.metrics.counter(self.metric, tuple(self.labels), "A counter of the application's own.")
        values_of, by_of = [getter(value) for value in self.labels.values()], getter(self.by)

        def handle(request: RequestContext) -> None:
            labels = [str(value_of(request.values)) for value_of in values_of]
            child = counter.labels(*labels) if labels else counter
            child.inc(max(0.0, number(by_of(request.values))))

        return handle
