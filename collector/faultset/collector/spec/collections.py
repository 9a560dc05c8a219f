"""Documents of a store, listed or generated, and random graphs for them."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import math
import random
import statistics
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from faultset.collector.spec.steps import FrozenModel


class RandomGraph(FrozenModel):
    """An undirected graph with log-normally distributed expected degrees."""

    first: int
    last: int
    """First and last node number."""
    edges: int = Field(ge=0)
    """Number of edges."""
    spread: float = Field(default=1.0, ge=0.0, le=2.0)
    """Standard deviation of the logarithm of a node's expected degree. With 0 all nodes are alike; with 1, one node in
    a thousand has twenty times the median degree."""
    seed: int = 0

    @model_validator(mode="after")
    def _has_room(self) -> RandomGraph:
        nodes = self.last - self.first + 1
        if nodes < 2 or self.edges > nodes * (nodes - 1) // 8:
            raise ValueError(
                f"a graph must have at least two nodes and edges between at most a quarter of their pairs, got {nodes} "
                f"nodes and {self.edges} edges"
            )
        return self


def neighbours(graph: RandomGraph) -> Mapping[int, tuple[int, ...]]:
    """Return the neighbours of each node in ascending order.

    The probability of an edge grows with the product of both nodes' expected degrees (Chung and Lu, 2002).

    >>> neighbours(RandomGraph(first=1, last=4, edges=1, seed=2))
    {1: (), 2: (), 3: (4,), 4: (3,)}
    """
    return _compute_neighbours(graph.first, graph.last, graph.edges, graph.spread, graph.seed)


@functools.lru_cache(maxsize=8)
def _compute_neighbours(first: int, last: int, edges: int, spread: float, seed: int) -> Mapping[int, tuple[int, ...]]:
    nodes, rng = list(range(first, last + 1)), random.Random(seed)
    rng.shuffle(nodes)
    normal = statistics.NormalDist()
    weights = [math.exp(spread * normal.inv_cdf((rank + 0.5) / len(nodes))) for rank in range(len(nodes))]
    bounds = list(itertools.accumulate(weights))
    adjacent: dict[int, set[int]] = {node: set() for node in range(first, last + 1)}
    missing_edges = edges
    while missing_edges:
        a, b = (nodes[bisect.bisect(bounds, rng.random() * bounds[-1], hi=len(nodes) - 1)] for _ in range(2))
        if a != b and b not in adjacent[a]:
            adjacent[a].add(b)
            adjacent[b].add(a)
            missing_edges -= 1
    return {node: tuple(sorted(others)) for node, others in adjacent.items()}


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

    A field is a constant, a string in which `{i}` is replaced by the index, a list or mapping of such values, or one of
    the rules `{start: a, step: b}` (a + b * i), `{cycle: [...]}` (values in turn), `{sha256: text}` (hexadecimal) and
    `{neighbours: graph, text: "{n}", at_most: c}` (a string for each neighbour `n` of the index in a `RandomGraph`;
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
