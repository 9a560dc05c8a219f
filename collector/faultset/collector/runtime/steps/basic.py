"""Steps that check requests, call services, publish messages, set values, record telemetry and respond."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import WatchedText, find_mount, use_cpu
from faultset.collector.runtime.http.caller import earliest, may_repeat, now
from faultset.collector.runtime.http.status import BadRequest, Code, RpcError
from faultset.collector.runtime.http.tracing import build_headers
from faultset.collector.runtime.steps.step import (
    Getter,
    Step,
    ValueStep,
    check_template,
    compile_steps,
    getter,
    number,
    text_of,
)
from faultset.collector.runtime.steps.stores import OnError
from faultset.collector.runtime.stores.driver import StoreError
from faultset.collector.spec.steps import CalledOperation, FieldPath, StepModel, Steps


class Require(Step):
    """Respond with `status` and `message` unless every field is present and valid."""

    keyword = "require"
    fields: tuple[str, ...]
    """Names of fields of the request that must be present and not empty."""
    numbers: bool = False
    """Whether the fields must be numbers; they are converted to numbers for later steps."""
    lists: bool = False
    """Whether the fields must be lists in JSON; they are converted to lists for later steps."""
    one_of: tuple[str, ...] = ()
    """The allowed values of the fields; if empty, any value is allowed."""
    status: int = 400
    """HTTP status of the response if a field is invalid."""
    message: str
    """Text of the response if a field is invalid."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        def handle(request: RequestContext) -> None:
            for name in self.fields:
                value = request.values.get(name)
                if value in (None, "") or (self.one_of and value not in self.one_of):
                    raise BadRequest(self.status, self.message)
                try:
                    if self.numbers:
                        request.values[name] = float(value)
                    if self.lists:
                        request.values[name] = _parse_list(value)
                except (TypeError, ValueError, RecursionError):
                    raise BadRequest(self.status, self.message) from None

        return handle


class Call(Step):
    """Call another service; by default a failure fails the request, and only `error_log` or the persona logs it."""

    keyword = "call"
    service: str
    """Name of the called service."""
    operation: str
    """The operation of that service, for instance `/Pricing/Offer`."""
    send: dict[str, Any] = Field(default_factory=dict)
    """Fields of the request."""
    save: str | None = None
    """Name under which the reply is saved for later steps."""
    span: str | None = None
    """Name of the client span; by default the operation."""
    has_span: bool = True
    """Whether the call has a client span. If not, the callee's span is a child of the calling operation's span."""
    timeout_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Seconds without a response after which the call fails; by default RPC_TIMEOUT_MS or, without it, no limit."""
    deadline_s: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Seconds within which the call and all its retries must end. Callees receive the remaining time and stop when it
    is over. A deadline of the request is always passed on; the earlier of the two counts."""
    retries: int = Field(default=0, ge=0, le=100)
    """Number of retries if a call times out or its callee is unavailable."""
    back_off_s: float = Field(default=0.1, ge=0.0, allow_inf_nan=False)
    """Pause in seconds before the first retry; each further pause is twice as long."""
    error_log: str | None = None
    """Line at level error that is logged if the call fails; `{error}` is replaced by the reason."""
    error_message: str | None = None
    """Description of the request's failure, with `{error}`; by default, the description of the call's failure."""
    on_error: Literal["fail", "ignore"] = "fail"
    """Whether a failed call fails the request or is ignored; an ignored call saves nothing."""
    at: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.-]+:\d+$")
    """`HOST:PORT` to connect to; by default, the address of the service."""

    def operations_called(self) -> tuple[CalledOperation, ...]:
        return (CalledOperation(self.service, self.operation),)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        send, span = getter(self.send), (self.span or self.operation) if self.has_span else None

        async def call(request: RequestContext) -> Any:
            body, pause_s = send(request.values), self.back_off_s
            deadline = request.deadline
            if self.deadline_s is not None:
                deadline = earliest(deadline, now() + self.deadline_s)
            for retries_left in range(self.retries, -1, -1):
                try:
                    return await service.caller.call(
                        self.service,
                        self.operation,
                        body,
                        request.trace,
                        span=span,
                        timeout_s=self.timeout_s,
                        at=self.at,
                        deadline=deadline,
                    )
                except RpcError as error:
                    if not retries_left or not may_repeat(error, None if deadline is None else deadline - pause_s):
                        raise
                await asyncio.sleep(pause_s)
                pause_s *= 2
            raise AssertionError("a call returns or raises")

        async def handle(request: RequestContext) -> None:
            try:
                reply = await call(request)
            except RpcError as error:
                lines = () if error.dialled is None else service.persona.lines_of_failed_dial(error.dialled, location)
                for line in lines:
                    service.log.write(*line)
                if not lines and self.error_log is not None:
                    service.log.error(location, self.error_log.replace("{error}", error.description))
                if self.on_error == "ignore":
                    return
                if self.error_message is None:
                    raise
                raise RpcError(error.code, self.error_message.replace("{error}", error.description)) from None
            if self.save is not None:
                request.values[self.save] = reply

        return handle


class Work(Step):
    """Use CPU time, in addition to the operation's own."""

    keyword = "work"
    cpu_ms: float = Field(ge=0.0, allow_inf_nan=False)
    """CPU time in milliseconds."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        return lambda request: use_cpu(self.cpu_ms)


class Respond(Step):
    """Set the response of the operation, which may depend on the value `when`."""

    keyword = "respond"
    json_: Any
    """The response if `when` is neither empty nor false."""
    when: Any = True
    """The value that decides between the two responses; by default true."""
    otherwise: Any = None
    """The response if `when` is empty or false."""

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        when, reply, otherwise = getter(self.when), getter(self.json_), getter(self.otherwise)

        def handle(request: RequestContext) -> None:
            request.reply = (reply if when(request.values) else otherwise)(request.values)

        return handle


def _parse_list(value: Any) -> list[Any]:
    items = json.loads(value) if isinstance(value, str) else value
    if not isinstance(items, list):
        raise TypeError(f"the value must be a list, but is {type(items).__name__}")
    return items


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} must be a regular expression ({error})") from None
    return text


class SetValues(Step):
    """Save values, or strings in which values are filled in, for later steps."""

    keyword = "set"
    values: dict[str, Any] = Field(default_factory=dict)
    """The values by name."""
    texts: dict[str, Annotated[str, AfterValidator(check_template)]] = Field(default_factory=dict)
    """Texts by name; `{a.b}` is replaced by the value `$a.b`, which is empty if absent."""

    def names_saved(self) -> tuple[str, ...]:
        return (*self.values, *self.texts)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        values = {name: getter(value) for name, value in self.values.items()}
        texts = {name: text_of(text) for name, text in self.texts.items()}

        def handle(request: RequestContext) -> None:
            request.values.update({name: value(request.values) for name, value in values.items()})
            request.values.update({name: text(request.values) for name, text in texts.items()})

        return handle


class UniqueId(Step):
    """Save a unique identifier: a whole number of at most 63 bits, as text, that grows over time.

    It consists of the time in milliseconds, ten bits for the process and a counter of eight bits.
    """

    keyword = "unique_id"
    save: str
    """Name under which the identifier is saved for later steps."""
    save_time: str | None = None
    """Name under which the milliseconds since 1970 are saved; by default they are not."""

    def names_saved(self) -> tuple[str, ...]:
        return (self.save,) if self.save_time is None else (self.save, self.save_time)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        process, counter = int.from_bytes(os.urandom(2), "big") & 0x3FF, itertools.count()

        def handle(request: RequestContext) -> None:
            milliseconds = int(time.time() * 1000)
            if self.save_time is not None:
                request.values[self.save_time] = milliseconds
            request.values[self.save] = str(milliseconds << 18 | process << 8 | next(counter) & 0xFF)

        return handle


class FindText(ValueStep):
    """Find all distinct matches of a pattern in a string, in order."""

    keyword = "find_text"
    text: Any
    """The text to search."""
    pattern: Annotated[str, AfterValidator(_check_pattern)]
    """A regular expression; if it has a group, the first group of each match is saved."""
    save: str
    """Name under which the list of matches is saved for later steps."""

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        value_of, pattern = getter(self.text), re.compile(self.pattern)
        group = 1 if pattern.groups else 0

        def find_matches(values: Mapping[str, Any]) -> list[str]:
            text = str(value_of(values) or "")
            return list(dict.fromkeys(match[group] for match in pattern.finditer(text)))

        return find_matches


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
        return (self.store,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
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
            headers = build_headers(span or request.trace)
            fields = {"body": json.dumps(message_of(request.values)), **headers}
            try:
                await broker.publish(self.topic, [fields] * times)
                sent.inc(times)
            except StoreError as error:
                if span is not None and service.persona.spans.reports_outcome:
                    span.fail(str(error))
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
        for index, step in enumerate(self.steps):
            yield ("steps", index), step

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        steps = compile_steps(self.steps, service, location)

        async def handle(request: RequestContext) -> None:
            span = service.tracing.internal(self.name, request.trace)
            inner = replace(request, trace=span)
            try:
                await steps(inner)
            except RpcError as error:
                if service.persona.spans.reports_outcome:
                    span.fail(str(error))
                raise
            finally:
                request.reply = inner.reply
                span.end()

        return handle


class Annotate(Step):
    """Set attributes of the request's span."""

    keyword = "annotate"
    attributes: dict[str, Any]
    """Values by name; all but strings, numbers and booleans are omitted."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        values_of = {name: getter(value) for name, value in self.attributes.items()}

        def handle(request: RequestContext) -> None:
            if request.trace is not None:
                values = {name: value_of(request.values) for name, value_of in values_of.items()}
                request.trace.set_attributes(
                    {name: value for name, value in values.items() if isinstance(value, (str, bool, int, float))}
                )

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
        counter = service.metrics.counter(self.metric, tuple(self.labels), "A counter of the application's own.")
        values_of, by_of = [getter(value) for value in self.labels.values()], getter(self.by)

        def handle(request: RequestContext) -> None:
            labels = [str(value_of(request.values)) for value_of in values_of]
            child = counter.labels(*labels) if labels else counter
            child.inc(max(0.0, number(by_of(request.values))))

        return handle


Read = Callable[[], Any]
"""Function that returns a value, or None if it does not exist."""


class ReadSetting(ValueStep):
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
        return () if self.variable is None or self.default is not None else (self.variable,)

    def files_read(self) -> tuple[str, ...]:
        return () if self.file is None else (self.file,)

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        read = _read_variable(self.variable, self.json_) if self.file is None else _read_file(self.file, self.json_)
        default, source = getter(self.default), self.file or self.variable

        def find_value(values: Mapping[str, Any]) -> Any:
            try:
                value = read()
            except ValueError as error:
                raise RpcError(Code.INTERNAL, f"{source} is not JSON: {error}") from None
            if value is None:
                value = default(values)
            if value is None:
                raise RpcError(Code.INTERNAL, f"{'variable' if self.file is None else 'file'} {source} does not exist")
            return value

        return find_value


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
