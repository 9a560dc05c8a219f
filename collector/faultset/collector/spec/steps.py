"""Steps, the building blocks of operations, and the base class of all spec models.

A step is a mapping with one key: its keyword. A string that starts with `$` is a path into the current values (`$lat`,
`$nearby.hotelIds`), which are the request's fields and the results of earlier steps. `faultset.collector.runtime.steps`
defines the keywords for every application; an application may add its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from faultset.core.printable import describe_choices

FieldPath = tuple[str | int, ...]
"""Keys and indices of a field in a spec."""


class FrozenModel(BaseModel):
    """Base of all spec models: immutable, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class CalledOperation(NamedTuple):
    """An operation of another service that a step calls."""

    service: str
    operation: str


class StepModel(FrozenModel):
    """The fields of one type of step, and the parts of its service that it uses."""

    keyword: ClassVar[str]
    """Name of the step in a spec."""

    def stores_used(self) -> tuple[str, ...]:
        """Return the stores and caches that the step uses; by default the values of the fields `store` and `cache`."""
        return tuple(name for field in ("cache", "store") if (name := getattr(self, field, None)) is not None)

    def stores_written(self) -> tuple[str, ...]:
        """Return the stores that the step writes to synchronously."""
        return ()

    def indexes_used(self) -> tuple[str, ...]:
        """Return the indexes that the step reads; by default the value of the field `index`."""
        name = getattr(self, "index", None)
        return () if name is None else (name,)

    def operations_called(self) -> tuple[CalledOperation, ...]:
        """Return the operations of other services that the step calls."""
        return ()

    def flags_read(self) -> tuple[str, ...]:
        """Return the feature flags that the step reads."""
        return ()

    def variables_read(self) -> tuple[str, ...]:
        """Return the environment variables that the step requires."""
        return ()

    def files_read(self) -> tuple[str, ...]:
        """Return the mounted files that the step reads."""
        return ()

    def brokers_used(self) -> tuple[str, ...]:
        """Return the used stores that must be message brokers."""
        return ()

    def names_saved(self) -> tuple[str, ...]:
        """Return the names of the values that the step saves; by default the value of the field `save`."""
        name = getattr(self, "save", None)
        return () if name is None else (name,)

    def inner_steps(self) -> Iterator[tuple[FieldPath, StepModel]]:
        """Yield the nested steps with their paths; most steps have none."""
        yield from ()


def all_steps(steps: Iterable[StepModel], path: FieldPath = ()) -> Iterator[tuple[FieldPath, StepModel]]:
    """Yield steps, each followed by its nested steps, with their paths, which begin with the path of the list."""
    for number, step in enumerate(steps):
        yield from _walk_step((*path, number), step)


def _walk_step(path: FieldPath, step: StepModel) -> Iterator[tuple[FieldPath, StepModel]]:
    yield path, step
    for inner_path, inner_steps in step.inner_steps():
        yield from _walk_step((*path, step.keyword, *inner_path), inner_steps)


StepTypes = Mapping[str, type[StepModel]]
"""Step types by keyword."""


def first_problem(error: ValidationError) -> tuple[FieldPath, str]:
    """Return the path and message of the first validation error; unknown keys come first.

    A misspelled key is usually also missing under its correct name, which the message suggests.
    """
    errors = error.errors(include_url=False)
    unknown = next((item for item in errors if item["type"] == "extra_forbidden"), None)
    if unknown is None:
        return errors[0]["loc"], errors[0]["msg"].removeprefix("Value error, ")
    *parents, key = unknown["loc"]
    missing = [str(item["loc"][-1]) for item in errors if item["type"] == "missing" and [*item["loc"][:-1]] == parents]
    close = difflib.get_close_matches(str(key), missing, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ""
    return unknown["loc"], f"unknown key {key!r}{hint}"


def _read_step(value: Any, info: ValidationInfo) -> StepModel:
    if isinstance(value, StepModel):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"a step must be a mapping with one key, its keyword, got {value!r}")
    ((keyword, fields),) = value.items()
    types: StepTypes = (info.context or {}).get("steps", {})
    if keyword not in types:
        raise ValueError(f"unknown step {keyword!r}, {describe_choices(types)}")
    try:
        return types[keyword].model_validate(fields, context=info.context)
    except ValidationError as error:
        path, reason = first_problem(error)
        kind = PydanticCustomError("step", "{reason}", {"reason": reason})
        details = InitErrorDetails(type=kind, loc=(keyword, *path), input=fields)
        raise ValidationError.from_exception_data(keyword, [details]) from None


def _write_steps(steps: tuple[StepModel, ...]) -> list[dict[str, Any]]:
    return [{step.keyword: step.model_dump(mode="json", by_alias=True, exclude_defaults=True)} for step in steps]


Steps = Annotated[tuple[Annotated[StepModel, BeforeValidator(_read_step)], ...], PlainSerializer(_write_steps)]
