"""Documents of a store, listed or generated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator

from faultset.collector.spec.random_graphs import RandomGraph, neighbours
from faultset.collector.spec.steps import FrozenModel


def _check_graphs(value: Any) -> Any:
    match value:
        case {"neighbours": graph}:
            RandomGraph.model_validate(graph)
        case dict():
            for item in value.values():
                _check_graphs(item)
        case list() | tuple():
            for item in value:
                _check_graphs(item)
        case _:
            pass
    return value


class Generated(FrozenModel):
    """Documents for the indices `i` from `first` to `last`, optionally only for multiples of a number.

    A field is a constant, a text in which `{i}` is replaced by the index, a list or mapping of such values, or one of
    the rules `{start: a, step: b}` (a + b * i), `{cycle: [...]}` (values in turn), `{sha256: text}` (hexadecimal) and
    `{neighbours: graph, text: "{n}", at_most: c}` (a text for each neighbour `n` of the index in a `RandomGraph`;
    without `text` its number, without `at_most` all neighbours).
    """

    first: int
    last: int
    multiple_of: int = 1
    fields: Annotated[dict[str, Any], AfterValidator(_check_graphs)]


class Collection(FrozenModel):
    """The documents of a collection and the field that identifies them.

    In an `appended` collection, several documents may have the same key. A `sorted` collection has a sorted set per
    key; the document's field `members` lists its members, lowest score first.
    """

    key: str
    appended: bool = False
    sorted: bool = False
    documents: tuple[dict[str, Any], ...] = ()
    generated: tuple[Generated, ...] = ()

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield all documents, listed ones first."""
        yield from (dict(document) for document in self.documents)
        for rule in self.generated:
            for index in range(rule.first, rule.last + 1):
                if index % rule.multiple_of == 0:
                    yield {name: _generate_value(value, index) for name, value in rule.fields.items()}


def _generate_value(value: Any, index: int) -> Any:
    match value:
        case {"start": start, "step": step}:
            return round(start + step * index, 6)
        case {"cycle": list() | tuple() as values}:
            return values[index % len(values)]
        case {"sha256": str() as text}:
            return hashlib.sha256(text.replace("{i}", str(index)).encode()).hexdigest()
        case {"neighbours": graph, **rest}:
            numbers = neighbours(RandomGraph.model_validate(graph)).get(index, ())[: rest.get("at_most")]
            return [rest["text"].replace("{n}", str(number)) for number in numbers] if "text" in rest else list(numbers)
        case str():
            return value.replace("{i}", str(index))
        case dict():
            return {name: _generate_value(item, index) for name, item in value.items()}
        case list():
            return [_generate_value(item, index) for item in value]
        case _:
            return value
