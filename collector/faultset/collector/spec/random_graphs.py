"""Graphs of who knows whom, with a few nodes that many know, drawn the same way each time."""

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
    """An undirected graph whose numbers of neighbours follow a log-normal distribution.

    Attributes
    ----------
    first, last
        Numbers of its nodes.
    edges
        How many pairs of nodes are neighbours.
    spread
        Standard deviation of the logarithm of a node's expected number of neighbours: 0 makes all alike, at 1 one node
        of a thousand has twenty times as many as the middle one.
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
                f"a graph needs two nodes, and an edge for at most a quarter of its pairs; found {nodes} nodes and "
                f"{self.edges} edges"
            )
        return self


def neighbours(graph: RandomGraph) -> Mapping[int, tuple[int, ...]]:
    """Return the neighbours of every node, in the order of their numbers.

    A pair is drawn with a probability that grows with the product of both nodes' expected numbers of neighbours
    (Chung and Lu, 2002).

    >>> neighbours(RandomGraph(first=1, last=4, edges=1, seed=2))
    {1: (), 2: (), 3: (4,), 4: (3,)}
    """
    return _neighbours(graph.first, graph.last, graph.edges, graph.spread, graph.seed)


@functools.lru_cache(maxsize=8)
def _neighbours(first: int, last: int, edges: int, spread: float, seed: int) -> Mapping[int, tuple[int, ...]]:
    nodes, rng = list(range(first, last + 1)), random.Random(seed)
    rng.shuffle(nodes)
    normal = statistics.NormalDist()
    weights = [math.exp(spread * normal.inv_cdf((rank + 0.5) / len(nodes))) for rank in range(len(nodes))]
    bounds = list(itertools.accumulate(weights))
    found: dict[int, set[int]] = {node: set() for node in range(first, last + 1)}
    left = edges
    while left:
        one, other = (nodes[bisect.bisect(bounds, rng.random() * bounds[-1], hi=len(nodes) - 1)] for _ in range(2))
        if one != other and other not in found[one]:
            found[one].add(other)
            found[other].add(one)
            left -= 1
    return {node: tuple(sorted(some)) for node, some in found.items()}
