"""The base class of steps, and the templates of values in their fields."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator

from faultset.collector.runtime.context import RequestContext, ServiceContext, StepHandler
from faultset.collector.spec.steps import StepModel

Getter = Callable[[Mapping[str, Any]], Any]


def getter(template: Any) -> Getter:
    """Return a function that fills in a template.

    A string `$a.b` becomes the field `b` of the value `a`, or None if it does not exist. A mapping with only the keys
    `each` and `value` becomes a list: `value` is filled in once for every element of `each`, and `$item` refers to that
    element. Other mappings and lists are filled in element by element; all other values are used as they are.
    """
    match template:
        case str() if template.startswith("$"):
            return _build_path_getter(template[1:])
        case {"each": each, "value": value, **rest} if not rest:
            return _build_list_getter(getter(each), getter(value))
        case dict():
            fields = {name: getter(field) for name, field in template.items()}
            return lambda values: {name: get_field(values) for name, get_field in fields.items()}
        case list() | tuple():
            items = [getter(item) for item in template]
            return lambda values: [get_item(values) for get_item in items]
        case _:
            return lambda values: template


def _build_path_getter(path: str) -> Getter:
    first, *rest = path.split(".")
    if not rest:
        return lambda values: values.get(first)

    def walk(values: Mapping[str, Any]) -> Any:
        value = values.get(first)
        for name in rest:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    return walk


def _build_list_getter(source: Getter, value: Getter) -> Getter:
    def gather(values: Mapping[str, Any]) -> list[Any]:
        return [value({**values, "item": item}) for item in source(values) or ()]

    return gather


def number(value: Any) -> float:
    """Return a value as a finite number; 0 if it is not one.

    >>> number("2.5"), number(None), number("many"), number(float("nan"))
    (2.5, 0.0, 0.0, 0.0)
    """
    try:
        result = float(value)
    except (TypeError, ValueError):
        return 0.0
    return result if math.isfinite(result) else 0.0


class Step(StepModel):
    """One kind of step: a model of its fields in a spec, which compiles to a function.

    Examples
    --------
    >>> class Constant(Step):
    ...     keyword = "constant"
    ...     value: int
    ...     save: str
    ...
    ...     def compile(self, service, location):
    ...         def handle(request):
    ...             request.values[self.save] = self.value
    ...         return handle
    """

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        """Return the function that runs the step for a request.

        `compile` is called once, when the service starts.

        Parameters
        ----------
        service
            State that the steps of the service share.
        location
            Location in the modelled source code, shown in log lines of the operation.
        """
        raise NotImplementedError(f"step {self.keyword} does not implement compile")


class ValueStep(Step):
    """A step that only saves one value, under the name in its field `save`."""

    def compile_value(self, service: ServiceContext, location: str) -> Getter:
        """Return the function that computes the value from the values of a request; see `compile`."""
        raise NotImplementedError(f"step {self.keyword} does not implement compile_value")

    def compile(self, service: ServiceContext, location: str) -> StepHandler:
        (name,), value_of = self.names_saved(), self.compile_value(service, location)

        def handle(request: RequestContext) -> None:
            request.values[name] = value_of(request.values)

        return handle


def compile_steps(
    steps: Iterable[StepModel], service: ServiceContext, location: str
) -> Callable[[RequestContext], Awaitable[None]]:
    """Return the function that runs steps in sequence; see `Step.compile`."""
    handlers = [step.compile(service, location) for step in steps if isinstance(step, Step)]

    async def run(request: RequestContext) -> None:
        for handle in handlers:
            awaitable = handle(request)
            if awaitable is not None:
                await awaitable

    return run


def check_template(text: str) -> str:
    """Return a string with names in braces; raise ValueError if the braces or names are invalid."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(f"{text!r} must be text with names in braces, but: {error}") from None
    for _, name, form, conversion in parts:
        if name is not None and (not re.fullmatch(r"[\w.]+", name) or form or conversion):
            raise ValueError(f"names in braces must be paths such as {{user.name}}, but {text!r} contains {{{name}}}")
    return text


def text_of(text: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that fills in a string with names in braces."""
    parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    compiled = [(literal, getter(f"${name}") if name else None) for literal, name in parts]

    def fill(variables: Mapping[str, Any]) -> str:
        values = ("" if value is None else value(variables) for _, value in compiled)
        texts = ("" if value is None else str(value) for value in values)
        return "".join(literal + text for (literal, _), text in zip(compiled, texts, strict=True))

    return fill


Template = Annotated[str, AfterValidator(check_template)]
