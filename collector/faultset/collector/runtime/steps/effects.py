"""Steps that send messages, record telemetry and read settings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import WatchedText, find_mount
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.step import Step, compile_steps
from faultset.collector.runtime.steps.stores import OnError
from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.runtime.tracing import build_headers, build_trace_context, fail, get_span
from faultset.collector.spec.steps import FieldPath, StepModel, Steps


class Publish(Step):
    """Publish a message to a topic of a broker; the message carries the ids of its span."""

    keyword = "publish"
    store: str
    """The broker, one of the service's `stores`."""
    topic: str
    """The topic; its first message creates it."""
    message: Any
    """The content, a mapping."""
    times: Any = 1
    """Number of copies to publish; if it is zero or absent, nothing is published."""
    span: str | None = None
    """Name of the producer's span; by default there is none."""
    error_log: str | None = None
    """Line that is logged if the broker fails, with `{error}`; by default none."""
    on_error: OnError = "fail"
    """Whether a failure of the broker fails the request, is ignored, or ends the process (`panic`)."""

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
            headers = build_headers(get_span(request.trace) if span is None else span)
            fields = {"body": json.dumps(message_of(request.values)), **headers}
            try:
                await broker.publish(self.topic, [fields] * times)
                sent.inc(times)
            except StoreError as error:
                if span is not None and service.persona.spans.reports_outcome:
                    fail(span, str(error))
                self._handle_failure(service, location, error)
            finally:
                if span is not None:
                    span.end()

        return handle

    def _handle_failure(self, service: ServiceContext, location: str, error: StoreError) -> None:
        text = (self.error_log or "{error}").replace("{error}", str(error))
        if self.on_error == "panic":
            service.log.panic(location, text)
        if self.error_log is not None:
            service.log.error(location, text)
        if self.on_error == "fail":
            raise RpcError(Code.INTERNAL, text) from None


class OpenSpan(Step):
    """Run steps inside an internal span."""

    keyword = "span"
    name: str
    """Name of the span."""
    steps: Steps
    """The steps inside the span; later steps can use the values that they save."""

    def inner_steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        """Yield the steps inside the span."""
        for index, step in enumerate(self.steps):
            yield ("steps", index), step

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that runs the steps."""
        steps = compile_steps(self.steps, service, location)

        async def handle(request: RequestContext) -> None:
            span = service.tracing.internal(self.name, request.trace)
            inner = replace(request, trace=build_trace_context(span))
            try:
                await steps(inner)
            except RpcError as error:
                if service.persona.spans.reports_outcome:
                    fail(span, str(error))
                raise
            finally:
                request.reply = inner.reply
                span.end()

        return handle


class Annotate(Step):
    """Set attributes of the request's span."""

    keyword = "annotate"
    attributes: dict[str, Any]
    """Values by name; all but texts, numbers and booleans are omitted."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that sets the attributes."""
        values_of = {name: getter(value) for name, value in self.attributes.items()}

        def handle(request: RequestContext) -> None:
            span = get_span(request.trace)
            for name, value_of in values_of.items():
                value = value_of(request.values)
                if isinstance(value, (str, bool, int, float)):
                    span.set_attribute(name, value)

        return handle


class Count(Step):
    """Increase a counter that the application defines."""

    keyword = "count"
    metric: str = Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")
    """Name of the metric; in Prometheus it ends in `_total`."""
    by: Any = 1
    """The increase; anything but a positive number counts as 0."""
    labels: dict[str, Any] = Field(default_factory=dict)
    """Values of the labels by name; each label should have few distinct values."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that increases the counter."""
        counter = service.metrics.counter(self.metric, tuple(self.labels), "A counter of the application's own.")
        values_of, by_of = [getter(value) for value in self.labels.values()], getter(self.by)

        def handle(request: RequestContext) -> None:
            labels = [str(value_of(request.values)) for value_of in values_of]
            child = counter.labels(*labels) if labels else counter
            child.inc(max(0.0, number(by_of(request.values))))

        return handle


Read = Callable[[], Any]
"""Function that returns a value, or None if it does not exist."""


class ReadSetting(Step):
    """Read an environment variable, as set when the container started, or the current content of a mounted file.

    Without a required variable, the service does not start. Without a required file, or if the text is not valid JSON,
    the request fails.
    """

    keyword = "setting"
    variable: str | None = None
    """Name of the variable, one of the service's `environment`."""
    file: str | None = None
    """Path of the file, one of the service's `files`, in place of a variable."""
    json_: bool = False
    """Whether the text is JSON, whose value is then saved."""
    default: Any = None
    """The value if the variable or file does not exist."""
    save: str
    """Name under which the text or value is saved for later steps."""

    model_config = Step.model_config | {"alias_generator": lambda name: name.rstrip("_"), "populate_by_name": True}

    @model_validator(mode="after")
    def _check_source(self) -> ReadSetting:
        if (self.variable is None) == (self.file is None):
            raise ValueError("a setting must have either variable or file; give one of them")
        return self

    def variables_read(self) -> tuple[str, ...]:
        """Return the variable, unless it has a default."""
        return () if self.variable is None or self.default is not None else (self.variable,)

    def files_read(self) -> tuple[str, ...]:
        """Return the file."""
        return () if self.file is None else (self.file,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the value."""
        read = _read_variable(self.variable, self.json_) if self.file is None else _read_file(self.file, self.json_)
        default, source = getter(self.default), self.file or self.variable

        def handle(request: RequestContext) -> None:
            try:
                value = read()
            except ValueError as error:
                raise RpcError(Code.INTERNAL, f"{source} is not JSON: {error}") from None
            if value is None:
                value = default(request.values)
            if value is None:
                raise RpcError(Code.INTERNAL, f"{'variable' if self.file is None else 'file'} {source} does not exist")
            request.values[self.save] = value

        return handle


def _read_variable(name: str | None, is_json: bool) -> Read:
    text = os.environ.get(name or "")
    return lambda: json.loads(text) if is_json and text is not None else text


def _read_file(path: str, is_json: bool) -> Read:
    file = WatchedText(find_mount(path))
    if not is_json:
        return file.read
    cache: list[Any] = [None, None]

    def read() -> Any:
        text = file.read()
        if text != cache[0]:
            cache[:] = [text, None if text is None else json.loads(text)]
        return cache[1]

    return read
