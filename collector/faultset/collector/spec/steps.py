"""The vocabulary in which an application spec says what an operation does.

An operation is a list of steps, each a mapping with one key: the behaviour's name. A string that begins with `$` is
a path into what is known so far (`$lat`, `$nearby.hotelIds`): the request's own fields, and what earlier steps saved.
`faultset.collector.runtime.operations` carries the steps out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Frozen(BaseModel):
    """A part of a spec: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Require(Frozen):
    """Answer `status` with `message` unless every field is present (and a number, or one of the values)."""

    fields: tuple[str, ...]
    numbers: bool = False
    one_of: tuple[str, ...] = ()
    status: int = 400
    message: str


class Call(Frozen):
    """Call another service; its failure fails the request, and is logged only when `error_log` is given."""

    service: str
    operation: str
    send: dict[str, Any]
    save: str
    error_log: str | None = None


class Work(Frozen):
    """Burn CPU time, on top of what the operation costs anyway."""

    cpu_ms: float


class Nearby(Frozen):
    """Keys of the documents of an index within `radius_km`, the nearest first, at most `limit`."""

    index: str
    lat: Any
    lon: Any
    radius_km: float
    limit: int
    save: str


class Best(Frozen):
    """One way to choose: the nearest to a point, or the largest or smallest value of a field."""

    nearest_to: tuple[Any, Any] | None = None
    largest: str | None = None
    smallest: str | None = None


class PickBest(Frozen):
    """Keys of the best documents of an index, by the way that `by` names; nothing and a warning for another name.

    All that are equally good are chosen, up to `limit`.
    """

    index: str
    limit: int
    by: Any
    ways: dict[str, Best]
    unknown_log: str
    save: str


class CheckPassword(Frozen):
    """Whether an index holds the user with this password (kept as SHA-256)."""

    index: str
    username: Any
    password: Any
    save: str


class CachedDocuments(Frozen):
    """Documents by key through a cache: one multi-get, one store query per miss, cache filled in the background.

    A failing cache always ends the process. `on_store_error` decides whether a failing store does too, or whether an
    empty record takes the document's place, in the answer *and in the cache*.
    """

    keys: Any
    cache: str
    cache_span: str
    cache_error: str
    store: str
    collection: str
    store_span: str
    store_error: str
    on_store_error: Literal["panic", "cache_empty"] = "panic"
    save: str


class Spans(Frozen):
    """Names of the client spans of `Availability`; `{key}` stands for item and night."""

    capacity_cache: str
    capacity_store: str
    bookings_cache: str
    bookings_store: str


class Availability(Frozen):
    """Keys whose capacity has `count` places free on every night of a stay, through a cache."""

    keys: Any
    nights: tuple[Any, Any]
    count: Any
    cache: str
    capacity_cache_error: str
    bookings_cache_error: str
    store: str
    capacity: str
    bookings: str
    store_error: str
    spans: Spans | None = None
    save: str


class Insert(Frozen):
    """Insert one document per night when `when` is not empty, and add `count` to the cached bookings."""

    when: Any
    key: Any
    nights: tuple[Any, Any]
    count: Any
    document: dict[str, Any]
    cache: str
    store: str
    collection: str
    store_error: str


class Respond(Frozen):
    """End the operation with this answer (`otherwise`, when `when` is given and empty or false)."""

    json_: Any
    when: Any = True
    otherwise: Any = None

    model_config = ConfigDict(alias_generator=lambda name: name.rstrip("_"), populate_by_name=True)


Behaviour = (
    Require | Call | Work | Nearby | PickBest | CheckPassword | CachedDocuments | Availability | Insert | Respond
)

BEHAVIOURS: dict[str, type[Frozen]] = {
    "require": Require,
    "call": Call,
    "work": Work,
    "nearby": Nearby,
    "pick_best": PickBest,
    "check_password": CheckPassword,
    "cached_documents": CachedDocuments,
    "availability": Availability,
    "insert": Insert,
    "respond": Respond,
}


class Step(Frozen):
    """One behaviour with its name."""

    name: str
    does: Behaviour


def _step(value: Any) -> Any:
    if isinstance(value, Step):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"a step is a mapping with one key, the behaviour; found {value!r}")
    ((name, options),) = value.items()
    if name not in BEHAVIOURS:
        raise ValueError(f"unknown behaviour {name!r}; known are {', '.join(BEHAVIOURS)}")
    return Step(name=name, does=BEHAVIOURS[name].model_validate(options))  # pyright: ignore[reportArgumentType]


Steps = tuple[Annotated[Step, BeforeValidator(_step)], ...]


def written(steps: Steps) -> list[dict[str, Any]]:
    """Steps as they stand in a spec."""
    return [{step.name: step.does.model_dump(mode="json", by_alias=True, exclude_defaults=True)} for step in steps]


def stores_of(steps: Steps) -> Iterator[str]:
    """Stores and caches that steps use."""
    for step in steps:
        for field in ("cache", "store"):
            name = getattr(step.does, field, None)
            if name is not None:
                yield name
