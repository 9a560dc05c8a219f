"""Steps that check requests, call services, work, set values and respond."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import string
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.environment import use_cpu
from faultset.collector.runtime.expressions import getter
from faultset.collector.runtime.http.caller import earliest, may_repeat, now
from faultset.collector.runtime.http.status import BadRequest, RpcError
from faultset.collector.runtime.steps.step import Step
from faultset.collector.spec.steps import CalledOperation


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
        """Return a function that raises BadRequest for an invalid field."""

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
        """Return the called operation."""
        return (CalledOperation(self.service, self.operation),)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that calls and saves the reply."""
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
        """Return a function that uses the CPU time."""
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
        """Return a function that sets the reply."""
        when, reply, otherwise = getter(self.when), getter(self.json_), getter(self.otherwise)

        def handle(request: RequestContext) -> None:
            request.reply = (reply if when(request.values) else otherwise)(request.values)

        return handle


def _parse_list(value: Any) -> list[Any]:
    items = json.loads(value) if isinstance(value, str) else value
    if not isinstance(items, list):
        raise TypeError(f"the value must be a list, but is {type(items).__name__}")
    return items


def check_template(text: str) -> str:
    """Return a text with names in braces; raise ValueError if the braces or names are invalid."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} must be text with names in braces, but: {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (not re.fullmatch(r"[\w.]+", name) or form or conversion):
            raise ValueError(f"names in braces must be paths such as {{user.name}}, but {text!r} contains {{{name}}}")
    return text


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} must be a regular expression, but: {error}") from None
    return text


class SetValues(Step):
    """Save values, or texts in which values are filled in, for later steps."""

    keyword = "set"
    values: dict[str, Any] = Field(default_factory=dict)
    """The values by name."""
    texts: dict[str, Annotated[str, AfterValidator(check_template)]] = Field(default_factory=dict)
    """Texts by name; `{a.b}` is replaced by the value `$a.b`, which is empty if absent."""

    def names_saved(self) -> tuple[str, ...]:
        """Return the names of values and texts."""
        return (*self.values, *self.texts)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the values and texts."""
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
        """Return the names of the identifier and the time."""
        return (self.save,) if self.save_time is None else (self.save, self.save_time)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that creates and saves an identifier."""
        process, counter = int.from_bytes(os.urandom(2), "big") & 0x3FF, itertools.count()

        def handle(request: RequestContext) -> None:
            milliseconds = int(time.time() * 1000)
            if self.save_time is not None:
                request.values[self.save_time] = milliseconds
            request.values[self.save] = str(milliseconds << 18 | process << 8 | next(counter) & 0xFF)

        return handle


class FindText(Step):
    """Find all distinct matches of a pattern in a text, in order."""

    keyword = "find_text"
    text: Any
    """The text to search."""
    pattern: Annotated[str, AfterValidator(_check_pattern)]
    """A regular expression; if it has a group, the first group of each match is saved."""
    save: str
    """Name under which the list of matches is saved for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that saves the matches."""
        value_of, pattern = getter(self.text), re.compile(self.pattern)
        group = 1 if pattern.groups else 0

        def handle(request: RequestContext) -> None:
            text = str(value_of(request.values) or "")
            request.values[self.save] = list(dict.fromkeys(match[group] for match in pattern.finditer(text)))

        return handle


def text_of(text: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that fills in a text with names in braces."""
    parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    compiled = [(literal, getter(f"${name}") if name else None) for literal, name in parts]

    def fill(variables: Mapping[str, Any]) -> str:
        values = ("" if value is None else value(variables) for _, value in compiled)
        texts = ("" if value is None else str(value) for value in values)
        return "".join(literal + text for (literal, _), text in zip(compiled, texts, strict=True))

    return fill
