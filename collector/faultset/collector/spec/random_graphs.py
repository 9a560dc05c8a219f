"""Reproducible random graphs with a heavy-tailed degree distribution, such as social networks."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
import statistics
from collections.abc import Mapping

from pydantic import Field, model_validator

from faultset.collector.spec.steps import FrozenModel


class RandomGraph(FrozenModel):
    """An undirected graph with log-normally distributed expected degrees.

    Attributes
    ----------
    first, last
        First and last node number.
    edges
        Number of edges.
    spread
        Standard deviation of the logarithm of a node's expected degree. With 0 all nodes are alike; with 1, one node in
        a thousand has twenty times the median degree.
    """

    first: int
    last: int
    edges: int = Field(ge=0)
    spread: float = Field(default=1.0, ge=0.0, le=2.0)
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
