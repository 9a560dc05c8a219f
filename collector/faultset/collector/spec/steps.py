"""Steps, of which the operations of a spec are made, and what every part of a spec has in common.

A step is a mapping with one key: its keyword. A string that begins with `$` is a path into what is known so far
(`$lat`, `$nearby.hotelIds`): the request's own fields, and what earlier steps saved. Which keywords there are depends
on who reads the spec: `faultset.collector.runtime.steps` has those that every application can use, and an application
may add its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

Place = tuple[str | int, ...]
"""Keys and indices that lead to a part of a spec."""


class FrozenModel(BaseModel):
    """A part of a spec: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CalledOperation(NamedTuple):
    """An operation of another service that a step calls."""

    service: str
    operation: str


class StepModel(FrozenModel):
    """The fields of one kind of step, and which parts of its service it uses."""

    keyword: ClassVar[str]
    """What the step is called in a spec."""

    def stores_used(self) -> tuple[str, ...]:
        """Return the stores and caches that the step reads or writes: those named by the fields `store` and `cache`."""
        return tuple(name for field in ("cache", "store") if (name := getattr(self, field, None)) is not None)

    def stores_written(self) -> tuple[str, ...]:
        """Return those of the stores used in which the step changes something, and waits for it."""
        return ()

    def indexes_used(self) -> tuple[str, ...]:
        """Return the indexes that the step reads: the one named by the field `index`."""
        name = getattr(self, "index", None)
        return () if name is None else (name,)

    def operations_called(self) -> tuple[CalledOperation, ...]:
        """Return the operations of other services that the step calls."""
        return ()

    def flags_read(self) -> tuple[str, ...]:
        """Return the feature flags that the step reads."""
        return ()

    def variables_read(self) -> tuple[str, ...]:
        """Return the environment variables that the step cannot do without."""
        return ()

    def files_read(self) -> tuple[str, ...]:
        """Return the mounted files that the step reads."""
        return ()

    def brokers_used(self) -> tuple[str, ...]:
        """Return those of the stores used that must be brokers of messages."""
        return ()

    def names_saved(self) -> tuple[str, ...]:
        """Return the names under which the step itself keeps values for later ones: the one in the field `save`."""
        name = getattr(self, "save", None)
        return () if name is None else (name,)

    def inner_steps(self) -> Iterator[tuple[Place, StepModel]]:
        """Yield the steps that it consists of, each with its place among the step's fields; most have none."""
        yield from ()


def all_steps(steps: Iterable[StepModel], place: Place = ()) -> Iterator[tuple[Place, StepModel]]:
    """Yield steps and, after each of them, the steps inside it, with their places.

    Parameters
    ----------
    place
        Where the steps stand.
    """
    for number, step in enumerate(steps):
        yield from _with_inner((*place, number), step)


def _with_inner(place: Place, step: StepModel) -> Iterator[tuple[Place, StepModel]]:
    yield place, step
    for inside, inner in step.inner_steps():
        yield from _with_inner((*place, step.keyword, *inside), inner)


StepTypes = Mapping[str, type[StepModel]]
"""Kinds of steps by keyword."""


def first_problem(error: ValidationError) -> tuple[Place, str]:
    """Return the place and the sentence of the first thing that a model refuses: a key that is unknown before others.

    A misspelled key is also missing under its right name, which the sentence suggests.
    """
    errors = error.errors(include_url=False)
    unknown = next((one for one in errors if one["type"] == "extra_forbidden"), None)
    if unknown is None:
        return errors[0]["loc"], errors[0]["msg"].removeprefix("Value error, ")
    *parents, key = unknown["loc"]
    missing = [str(one["loc"][-1]) for one in errors if one["type"] == "missing" and [*one["loc"][:-1]] == parents]
    close = difflib.get_close_matches(str(key), missing, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ""
    return unknown["loc"], f"unknown key {key!r}{hint}"


def _read_step(value: Any, info: ValidationInfo) -> StepModel:
    if isinstance(value, StepModel):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"a step is a mapping with one key, its keyword; found {value!r}")
    ((keyword, fields),) = value.items()
    types: StepTypes = (info.context or {}).get("steps", {})
    if keyword not in types:
        raise ValueError(f"there is no step {keyword!r}; known are {', '.join(types) or 'none'}")
    try:
        return types[keyword].model_validate(fields, context=info.context)
    except ValidationError as error:
        place, reason = first_problem(error)
        kind = PydanticCustomError("step", "{reason}", {"reason": reason})
        details = InitErrorDetails(type=kind, loc=(keyword, *place), input=fields)
        raise ValidationError.from_exception_data(keyword, [details]) from None


def _write_steps(steps: tuple[StepModel, ...]) -> list[dict[str, Any]]:
    return [{step.keyword: step.model_dump(mode="json", by_alias=True, exclude_defaults=True)} for step in steps]


Steps = Annotated[tuple[Annotated[StepModel, BeforeValidator(_read_step)], ...], PlainSerializer(_write_steps)]
