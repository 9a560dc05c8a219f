"""Steps that send messages, record telemetry and read settings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import WatchedText, mounted
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step, compile_steps
from faultset.collector.runtime.steps.stores import OnError
from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.runtime.tracing import context_of, fail, headers_of, span_of
from faultset.collector.spec.steps import Place, StepModel, Steps


class Publish(Step):
    """Publish a message to a topic of a broker, with the span under which it was published."""

    keyword = "publish"
    store: str
    """The broker, one of the service's `stores`."""
    topic: str
    """The topic, which comes into being with its first message."""
    message: Any
    """The content, a mapping."""
    times: Any = 1
    """How many copies are published, a number; nothing happens when it is zero or nothing."""
    span: str | None = None
    """Name of the producer's span; none when left out."""
    error_log: str | None = None
    """Line that is logged when the broker fails, with `{error}`; none when left out."""
    on_error: OnError = "fail"
    """Whether a failing broker fails the request, does nothing more, or ends the process (`panic`)."""

    def brokers_used(self) -> tuple[str, ...]:
        """Return the broker."""
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that publishes."""
        broker = service.stores[self.store]
        message_of, times_of = getter(self.message), getter(self.times)
        system = broker.driver.system
        sent = service.metrics.counter(
            "messaging_client_sent_messages", ("messaging_system", "destination"), "Messages published."
        ).labels(system, self.topic)

        async def handle(request: RequestContext) -> None:
            times = int(number(times_of(request.values)))
            if times <= 0:
                return
            attributes = {
                "messaging.system": system,
                "messaging.destination.name": self.topic,
                "peer.service": self.store,
            }
            span = None if self.span is None else service.tracing.producer(self.span, request.trace, attributes)
            headers = headers_of(span_of(request.trace) if span is None else span)
            fields = {"body": json.dumps(message_of(request.values)), **headers}
            try:
                await broker.publish(self.topic, [fields] * times)
                sent.inc(times)
            except StoreError as error:
                if span is not None and service.persona.spans.tell_outcome:
                    fail(span, str(error))
                self._failed(service, location, error)
            finally:
                if span is not None:
                    span.end()

        return handle

    def _failed(self, service: ServiceContext, location: str, error: StoreError) -> None:
        text = (self.error_log or "{error}").replace("{error}", str(error))
        if self.on_error == "panic":
            service.log.panic(location, text)
        if self.error_log is not None:
            service.log.error(location, text)
        if self.on_error == "fail":
            raise RpcError(Code.INTERNAL, text) from None


class OpenSpan(Step):
    """Carry out steps under a span of their own, one of the service's parts."""

    keyword = "span"
    name: str
    """Name of the span."""
    steps: Steps
    """The steps under it; later steps see the values that they save."""

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
    """Values by name; absent values are left out."""

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
    """By how much; anything but a number counts as 0."""
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


Read = Callable[[], Any]
"""Returns a value, or None where there is none."""


class ReadSetting(Step):
    """Read an environment variable, as it was when the container started, or a mounted file, as it is now.

    A service whose variable is absent and has no default does not start. A request for a file that is absent or cannot
    be understood fails.
    """

    keyword = "setting"
    variable: str | None = None
    """Name of the variable, one of the service's `environment`."""
    file: str | None = None
    """Path of the file, one of the service's `files`, in place of a variable."""
    json_: bool = False
    """Whether the text is JSON; the value that it holds is kept then."""
    default: Any = None
    """A value for a variable or file that is absent."""
    save: str
    """Name under which text or value is kept for later steps."""

    model_config = Step.model_config | {"alias_generator": lambda name: name.rstrip("_"), "populate_by_name": True}

    @model_validator(mode="after")
    def _reads_one_thing(self) -> ReadSetting:
        if (self.variable is None) == (self.file is None):
            raise ValueError("name either the variable or the file that is read")
        return self

    def variables_read(self) -> tuple[str, ...]:
        """Return the variable, unless there is a default for it."""
        return () if self.variable is None or self.default is not None else (self.variable,)

    def files_read(self) -> tuple[str, ...]:
        """Return the file."""
        return () if self.file is None else (self.file,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the value."""
        read = _variable(self.variable, self.json_) if self.file is None else _file(self.file, self.json_)
        default, what = getter(self.default), self.file or self.variable

        def handle(request: RequestContext) -> None:
            try:
                value = read()
            except ValueError as error:
                raise RpcError(Code.INTERNAL, f"{what} is not JSON: {error}") from None
            if value is None:
                value = default(request.values)
            if value is None:
                raise RpcError(Code.INTERNAL, f"{what}: no such {'variable' if self.file is None else 'file'}")
            request.values[self.save] = value

        return handle


def _variable(name: str | None, is_json: bool) -> Read:
    text = os.environ.get(name or "")
    return lambda: json.loads(text) if is_json and text is not None else text


def _file(path: str, is_json: bool) -> Read:
    file = WatchedText(mounted(path))
    if not is_json:
        return file.read
    seen: list[Any] = [None, None]

    def read() -> Any:
        text = file.read()
        if text != seen[0]:
            seen[:] = [text, None if text is None else json.loads(text)]
        return seen[1]

    return read
