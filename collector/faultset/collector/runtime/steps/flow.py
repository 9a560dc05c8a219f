"""Steps that consist of steps: at once, under a condition, or once for each element of a list."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.runtime.expressions import getter, number
from faultset.collector.runtime.http.status import Code, RpcError
from faultset.collector.runtime.steps.basic import check_template, text_of
from faultset.collector.runtime.steps.step import Step, compile_steps
from faultset.collector.runtime.tracing import ids_of, span_of
from faultset.collector.spec.steps import Place, StepModel, Steps


class Parallel(Step):
    """Carry out several branches of steps at once, and go on when all of them have ended.

    A branch sees earlier values and its own; later steps see the values of all branches.
    """

    keyword = "parallel"
    branches: tuple[Steps, ...] = Field(min_length=1)
    """The branches, each a list of steps."""
    on_failure: Literal["join", "at_once"] = "join"
    """`join` fails the request when all branches have ended, `at_once` cancels the others at the first failure."""

    @model_validator(mode="after")
    def _saves_each_name_in_one_branch(self) -> Parallel:
        seen: set[str] = set()
        for branch in self.branches:
            names = set(_names_saved(branch))
            if twice := sorted(seen & names):
                raise ValueError(
                    f"two branches save {twice[0]!r}, so that the slower one would win; name one differently"
                )
            seen |= names
        return self

    def inner_steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps of every branch."""
        for index, branch in enumerate(self.branches):
            yield from _placed(("branches", index), branch)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that carries out the branches; of several failures the first is raised."""
        branches = [compile_steps(branch, service, location) for branch in self.branches]

        async def handle(request: RequestContext) -> None:
            await _gather([branch(request) for branch in branches], at_once=self.on_failure == "at_once")

        return handle


class When(Step):
    """Carry out steps when a value is not empty (or is one of several), and others otherwise."""

    keyword = "when"
    value: Any
    """Value to test. False, zero, null and an empty text or list are empty."""
    one_of: tuple[Any, ...] = ()
    """The values for which `steps` are carried out; any that is not empty when left out."""
    steps: Steps
    """Steps for that case."""
    otherwise: Steps = ()
    """Steps for the other case."""

    def inner_steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps of both cases."""
        yield from _placed(("steps",), self.steps)
        yield from _placed(("otherwise",), self.otherwise)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that looks and carries out."""
        value_of = getter(self.value)
        steps, otherwise = (compile_steps(some, service, location) for some in (self.steps, self.otherwise))

        async def handle(request: RequestContext) -> None:
            value = value_of(request.values)
            holds = value in self.one_of if self.one_of else bool(value)
            await (steps if holds else otherwise)(request)

        return handle


class ForEach(Step):
    """Run steps once for each element of a list; the values that they save exist in the same round only."""

    keyword = "for_each"
    items: Any
    """The list; an absent list is empty, and a whole number is a number of rounds."""
    name: str = "item"
    """Name of the element in the steps, for instance `$item`."""
    at_most: int = Field(ge=1)
    """How many elements are looked at; further ones are left out."""
    at_once: int = Field(default=1, ge=1)
    """Number of concurrent rounds; 1 runs them in sequence."""
    steps: Steps
    """The steps of one round."""
    collect: Any = None
    """Value of a round that is saved."""
    save: str | None = None
    """Name of the list of these values for later steps."""

    def inner_steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps of a round."""
        yield from _placed(("steps",), self.steps)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that goes through the list; the first failure ends it."""
        items_of, kept_of = getter(self.items), getter(self.collect)
        steps = compile_steps(self.steps, service, location)

        async def handle(request: RequestContext) -> None:
            slots = asyncio.Semaphore(self.at_once)

            async def one(item: Any) -> Any:
                async with slots:
                    inner = replace(request, values={**request.values, self.name: item})
                    await steps(inner)
                    return kept_of(inner.values)

            given = items_of(request.values) or ()
            items = list(range(min(given, self.at_most)) if isinstance(given, int) else given)[: self.at_most]
            if self.at_once == 1:
                kept = [await one(item) for item in items]
            else:
                kept = await _gather([one(item) for item in items], at_once=True)
            if self.save is not None:
                request.values[self.save] = kept

        return handle


def _names_saved(steps: Sequence[StepModel]) -> Iterator[str]:
    """Yield the names that steps save for those after them; what is saved in a round is known to the round only."""
    for step in steps:
        yield from step.names_saved()
        if not isinstance(step, ForEach):
            yield from _names_saved([inner for _, inner in step.inner_steps()])


def _placed(place: Place, steps: Sequence[StepModel]) -> Iterator[tuple[Place, StepModel]]:
    for index, step in enumerate(steps):
        yield (*place, index), step


async def _gather(work: Sequence[Awaitable[Any]], *, at_once: bool) -> list[Any]:
    """Return what all work returns; raise the first failure, at once or when all has ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    failures: list[BaseException] = []

    def note(task: asyncio.Future[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failures.append(error)

    for task in tasks:
        task.add_done_callback(note)
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
    """Its description; `{a.b}` is replaced by the value `$a.b`."""
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
    """Duration; anything but a positive number means no wait. An hour at most."""
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
    """The line; `{a.b}` is replaced by the value `$a.b`."""
    level: Literal["trace", "info", "warning", "error"] = "info"
    """Its level; lines at `trace` are left out when the application logs at `info`."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that writes."""
        text = text_of(self.text)

        def handle(request: RequestContext) -> None:
            service.log.write(self.level, location, f"{text(request.values)} {ids_of(span_of(request.trace))}")

        return handle


class ReadFlag(Step):
    """Read the value of a feature flag."""

    keyword = "flag"
    name: str
    """Name of the flag, one of the application's."""
    save: str
    """Name under which the value is kept for later steps."""

    def flags_read(self) -> tuple[str, ...]:
        """Return the flag."""
        return (self.name,)

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that reads."""

        def handle(request: RequestContext) -> None:
            request.values[self.save] = service.flags.value(self.name)

        return handle


class ReadFlags(Step):
    """Read the values of all feature flags, as their provider answers others."""

    keyword = "all_flags"
    save: str
    """Name under which a mapping of values by name is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that reads."""

        def handle(request: RequestContext) -> None:
            request.values[self.save] = service.flags.all()

        return handle


class Chance(Step):
    """Decide by chance."""

    keyword = "chance"
    share: Any
    """Probability of true, from 0 to 1; anything but a number counts as 0."""
    save: str
    """Name under which true or false is kept for later steps."""

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return a function that decides."""
        share_of = getter(self.share)

        def handle(request: RequestContext) -> None:
            request.values[self.save] = random.random() < number(share_of(request.values))

        return handle
