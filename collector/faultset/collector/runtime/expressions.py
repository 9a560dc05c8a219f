"""Values in steps: constants, and paths into what an operation knows so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Getter = Callable[[Mapping[str, Any]], Any]


def getter(template: Any) -> Getter:
    """Return a function that fills in a template.

    A text `$a.b` is the field `b` of the value `a`, or None where there is none. A mapping with the keys `each` and
    `value` makes a list, in whose `value` the name `item` stands for one element. Anything else is itself.
    """
    match template:
        case str() if template.startswith("$"):
            return _path(template[1:])
        case {"each": each, "value": value, **rest} if not rest:
            return _each(getter(each), getter(value))
        case dict():
            parts = {name: getter(part) for name, part in template.items()}
            return lambda known: {name: part(known) for name, part in parts.items()}
        case list() | tuple():
            items = [getter(part) for part in template]
            return lambda known: [item(known) for item in items]
        case _:
            return lambda known: template


def _path(path: str) -> Getter:
    first, *rest = path.split(".")
    if not rest:
        return lambda known: known.get(first)

    def walk(known: Mapping[str, Any]) -> Any:
        value = known.get(first)
        for part in rest:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    return walk


def _each(source: Getter, value: Getter) -> Getter:
    def gather(known: Mapping[str, Any]) -> list[Any]:
        return [value({**known, "item": item}) for item in source(known) or ()]

    return gather


def number(value: Any) -> float:
    """Return a finite number; 0 for anything that is none.

    >>> number("2.5"), number(None), number("many"), number(float("nan"))
    (2.5, 0.0, 0.0, 0.0)
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0
