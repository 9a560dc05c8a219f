"""Steps that control the flow: branches, conditions, loops, failures, waits and flags."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.http.tracing import format_ids
from faultset.collector.runtime.steps.step import (
    Getter,
    Step,
    Template,
    ValueStep,
    compile_steps,
    getter,
    number,
    text_of,
)
from faultset.collector.spec.steps import FieldPath, StepModel, Steps

_LONGEST_WAIT_S = 3600.0


class Parallel(Step):
    """Run several branches of steps concurrently, and continue when all have ended.

    A branch can use earlier values and the values that it saves; later steps can use the values of all branches.
    """

    keyword = "parallel"
    branches: tuple[Steps, ...] = Field(min_length=1)
    """The branches, each a list of steps."""
    on_failure: Literal["join", "at_once"] = "join"
    """After a failure, `join` waits for the other branches and `at_once` cancels them; then the request fails."""

    @model_validator(mode="after")
    def _check_names_differ(self) -> Parallel:
        saved: set[str] = set()
        for branch in self.branches:
            names = set(_list_saved_names(branch))
            if repeated := sorted(saved & names):
                raise ValueError(f"only one branch may save {repeated[0]!r}, but two do; use different names")
            saved |= names
        return self

    def inner_steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        for index, branch in enumerate(self.branches):
            yield from _locate_steps(("branches", index), branch)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        branches = [compile_steps(branch, service, location) for branch in self.branches]

        async def handle(request: RequestContext) -> None:
            await _gather([branch(request) for branch in branches], at_once=self.on_failure == "at_once")

        return handle


class When(Step):
    """Run steps if a value is not empty, or is one of several values; run other steps otherwise."""

    keyword = "when"
    value: Any
    """Value to test. False, zero, null and an empty text or list are empty."""
    one_of: tuple[Any, ...] = ()
    """The values for which `steps` run; by default any value that is not empty."""
    steps: Steps
    """Steps that run if the condition is true."""
    otherwise: Steps = ()
    """Steps that run if the condition is false."""

    def inner_steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        yield from _locate_steps(("steps",), self.steps)
        yield from _locate_steps(("otherwise",), self.otherwise)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        value_of = getter(self.value)
        steps, otherwise = (compile_steps(branch, service, location) for branch in (self.steps, self.otherwise))

        async def handle(request: RequestContext) -> None:
            value = value_of(request.values)
            holds = value in self.one_of if self.one_of else bool(value)
            await (steps if holds else otherwise)(request)

        return handle


class ForEach(Step):
    """Run steps once for each element of a list; the values that they save exist only in the same round."""

    keyword = "for_each"
    items: Any
    """The list, or a number of rounds; an absent list is empty."""
    name: str = "item"
    """Name of the element in the steps; the default `item` is read as `$item`."""
    at_most: int = Field(ge=1)
    """Maximum number of rounds; further elements are ignored."""
    at_once: int = Field(default=1, ge=1)
    """Number of concurrent rounds; 1 runs them in sequence."""
    steps: Steps
    """The steps of one round."""
    collect: Any = None
    """Value of each round that is collected."""
    save: str | None = None
    """Name under which the list of collected values is saved for later steps."""

    def inner_steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        """Yield the steps of a round."""
        yield from _locate_steps(("steps",), self.steps)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that runs the rounds; the first failure ends the loop."""
        items_of, collected_of = getter(self.items), getter(self.collect)
        steps = compile_steps(self.steps, service, location)

        async def handle(request: RequestContext) -> None:
            slots = asyncio.Semaphore(self.at_once)

            async def run_round(item: Any) -> Any:
                async with slots:
                    inner = replace(request, values={**request.values, self.name: item})
                    await steps(inner)
                    return collected_of(inner.values)

            source = items_of(request.values) or ()
            items = list(range(min(source, self.at_most)) if isinstance(source, int) else source)[: self.at_most]
            if self.at_once == 1:
                collected = [await run_round(item) for item in items]
            else:
                collected = await _gather([run_round(item) for item in items], at_once=True)
            if self.save is not None:
                request.values[self.save] = collected

        return handle


def _list_saved_names(steps: Sequence[StepModel]) -> Iterator[str]:
    """Yield the names that steps save for later steps; names saved inside a loop are left out."""
    for step in steps:
        yield from step.names_saved()
        if not isinstance(step, ForEach):
            yield from _list_saved_names([inner for _, inner in step.inner_steps()])


def _locate_steps(path: FieldPath, steps: Sequence[StepModel]) -> Iterator[tuple[FieldPath, StepModel]]:
    for index, step in enumerate(steps):
        yield (*path, index), step


async def _gather(work: Sequence[Awaitable[Any]], *, at_once: bool) -> list[Any]:
    """Return the results of all work; raise the first failure, at once or after all work has ended."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in work]
    failures: list[BaseException] = []

    def record_failure(task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)

    for task in tasks:
        task.add_done_callback(record_failure)
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION if at_once else asyncio.ALL_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    if failures:
        raise failures[0]
    return [task.result() for task in tasks]


class Fail(Step):
    """Fail the request."""

    keyword = "fail"
    code: Literal["unknown", "invalid_argument", "not_found", "failed_precondition", "internal", "unavailable"] = (
        "internal"
    )
    """gRPC status code of the failure."""
    message: Template
    """Description of the failure; `{a.b}` is replaced by the value `$a.b`."""
    log: Template | None = None
    """Line that is logged at level error; by default none."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        message, line = text_of(self.message), None if self.log is None else text_of(self.log)
        code = Code[self.code.upper()]

        def handle(request: RequestContext) -> None:
            if line is not None:
                service.log.error(location, f"{line(request.values)} {format_ids(request.trace)}")
            raise RpcError(code, message(request.values))

        return handle


class Wait(Step):
    """Wait without using the CPU."""

    keyword = "wait"
    seconds: Any = 0
    """Duration, at most an hour; anything but a positive number means no wait."""
    milliseconds: Any = 0
    """Duration in milliseconds, which is added to `seconds`."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        seconds_of, milliseconds_of = getter(self.seconds), getter(self.milliseconds)

        async def handle(request: RequestContext) -> None:
            wait_s = number(seconds_of(request.values)) + number(milliseconds_of(request.values)) / 1000
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))

        return handle


class WriteLine(Step):
    """Log a line with the ids of the request's span."""

    keyword = "log"
    text: Template
    """The line; `{a.b}` is replaced by the value `$a.b`."""
    level: Literal["trace", "info", "warning", "error"] = "info"
    """Level of the line; lines at `trace` are omitted if the application logs at `info`."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        text = text_of(self.text)

        def handle(request: RequestContext) -> None:
            service.log.write(self.level, location, f"{text(request.values)} {format_ids(request.trace)}")

        return handle


class ReadFlag(ValueStep):
    """Read the value of a feature flag."""

    keyword = "flag"
    name: str
    """Name of the flag, one of the application's."""
    save: str
    """Name under which the value is saved for later steps."""

    def flags_read(self) -> tuple[str, ...]:
        return (self.name,)

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        return lambda values: service.flags.value(self.name)


class ReadFlags(ValueStep):
    """Read the values of all feature flags, for the response of a flag provider."""

    keyword = "all_flags"
    save: str
    """Name under which a mapping of values by name is saved for later steps."""

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        return lambda values: service.flags.all()


class Chance(ValueStep):
    """Draw true or false at random."""

    keyword = "chance"
    share: Any
    """Probability of true, from 0 to 1; anything but a number counts as 0."""
    save: str
    """Name under which true or false is saved for later steps."""

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        share_of = getter(self.share)
        return lambda values: random.random() < number(share_of(values))
