"""Templates for values in steps: constants, and references to values of the current operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Getter = Callable[[Mapping[str, Any]], Any]


def getter(template: Any) -> Getter:
    """Return a function that fills in a template.

    A text `$a.b` becomes the field `b` of the value `a`, or None if it does not exist. A mapping with only the keys
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
