"""Documents that a store holds, listed or generated, and the values that requests are drawn from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator

from faultset.collector.spec.random_graphs import RandomGraph, neighbours
from faultset.collector.spec.steps import FrozenModel


def _with_right_graphs(value: Any) -> Any:
    match value:
        case {"neighbours": graph}:
            RandomGraph.model_validate(graph)
        case dict():
            for part in value.values():
                _with_right_graphs(part)
        case list() | tuple():
            for part in value:
                _with_right_graphs(part)
        case _:
            pass
    return value


class Generated(FrozenModel):
    """Documents for the indices `i` from `first` to `last`, or only for multiples of a number among them.

    A field is a constant, a text in which `{i}` stands for the index, a list or mapping of such, or one of the rules
    `{start: a, step: b}` (a + b * i), `{cycle: [...]}` (values in turn), `{sha256: text}` (hexadecimal) and
    `{neighbours: graph, text: "{n}", at_most: c}` (a text for each neighbour `n` of the index in a `RandomGraph`;
    without `text` the number, without `at_most` all of them).
    """

    first: int
    last: int
    multiple_of: int = 1
    fields: Annotated[dict[str, Any], AfterValidator(_with_right_graphs)]


class Collection(FrozenModel):
    """Documents of one collection and the field that identifies them.

    In an `appended` collection several documents may have the same key. A `sorted` one is a sorted set for each key,
    whose members the document's field `members` lists, the one with the lowest score first.
    """

    key: str
    appended: bool = False
    sorted: bool = False
    documents: tuple[dict[str, Any], ...] = ()
    generated: tuple[Generated, ...] = ()

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield every document, the listed ones first."""
        yield from (dict(document) for document in self.documents)
        for rule in self.generated:
            for index in range(rule.first, rule.last + 1):
                if index % rule.multiple_of == 0:
                    yield {name: _value(value, index) for name, value in rule.fields.items()}


def _value(value: Any, index: int) -> Any:
    match value:
        case {"start": start, "step": step}:
            return round(start + step * index, 6)
        case {"cycle": list() | tuple() as values}:
            return values[index % len(values)]
        case {"sha256": str() as text}:
            return hashlib.sha256(text.replace("{i}", str(index)).encode()).hexdigest()
        case {"neighbours": graph, **rest}:
            found = neighbours(RandomGraph.model_validate(graph)).get(index, ())[: rest.get("at_most")]
            return [rest["text"].replace("{n}", str(one)) for one in found] if "text" in rest else list(found)
        case str():
            return value.replace("{i}", str(index))
        case dict():
            return {name: _value(part, index) for name, part in value.items()}
        case list():
            return [_value(part, index) for part in value]
        case _:
            return value
