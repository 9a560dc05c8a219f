"""Random walks on the call graph."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.graph_traversal import Microscope
from faultset.baselines.methods.localization.random_walks import MonitorRank, build_walk, measure_visits
from tests.baselines.conversations import SECOND, START, conversation, spoken


def test_visits_are_the_fixed_point_of_the_walk() -> None:
    calls = (("front", "cart"), ("front", "user"), ("cart", "db"))
    similarity = {"front": 1.0, "cart": 0.7, "user": 0.2, "db": 0.9}
    graph = build_walk(calls, similarity, backward=0.2)
    names = sorted(similarity)
    weight = np.zeros((4, 4))
    for start, end, value in graph.edges(data="weight"):
        weight[names.index(start), names.index(end)] = value
    moves = weight / weight.sum(axis=1, keepdims=True)
    start = {"cart": 0.7, "user": 0.2, "db": 0.9}
    restart = np.array([start.get(name, 0.0) for name in names]) / sum(start.values())
    expected = np.linalg.solve(np.eye(4) - 0.85 * moves.T, 0.15 * restart)
    result = measure_visits(graph, start)
    assert [result[name] for name in names] == pytest.approx(expected.tolist(), abs=1e-5)
    # db: 0.9 to itself, 0.2 · 0.7 back to cart; front: to cart and user, and 1 - 0.7 to itself.
    assert weight[names.index("db")].tolist() == pytest.approx([0.14, 0.9, 0.0, 0.0])
    assert weight[names.index("front")].tolist() == pytest.approx([0.7, 0.0, 0.3, 0.2])


def test_a_pair_that_calls_both_ways_keeps_the_stronger_reason() -> None:
    graph = build_walk((("a", "b"), ("b", "a")), {"a": 1.0, "b": 0.1}, backward=0.5)
    assert graph["a"]["b"]["weight"] == pytest.approx(0.1)
    assert graph["b"]["a"]["weight"] == pytest.approx(1.0)


def test_walkers_find_the_slow_service_at_the_end_of_the_chain() -> None:
    episode = spoken(spans=conversation(slow_from=28), calls=(("front", "cart"), ("cart", "db")))
    assert MonitorRank().localize(episode, START + 30 * SECOND).ordered[0] == "db"
    assert Microscope().localize(episode, START + 30 * SECOND).ordered == ("db",)
