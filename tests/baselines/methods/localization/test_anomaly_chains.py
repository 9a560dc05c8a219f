"""Chains of anomalous calls: MicroHECL and MicroDig compared with results by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from faultset.baselines.features.calls import read_call_edges
from faultset.baselines.methods.localization.anomaly_chains import (
    MicroDig,
    MicroHECL,
    build_transitions,
    expect_visits,
    follow_chains,
)
from tests.baselines.conversations import SECOND, START, conversation, linked, span, spoken

PAIRS = [("front", "cart"), ("cart", "db"), ("front", "ads"), ("db", "front")]
ALIKE = np.ones((4, 4))


def chains(is_anomalous: list[bool], similarity: np.ndarray = ALIKE, start: str = "front", upwards: bool = False):
    return follow_chains(start, PAIRS, is_anomalous, similarity, upwards=upwards, similar=0.7)


def test_a_chain_ends_where_no_anomalous_call_follows() -> None:
    assert chains([True, True, False, False]) == {"db": 1}
    assert chains([True, False, True, False]) == {"ads": 2, "cart": 0}
    assert chains([False, True, False, False]) == {}


def test_a_chain_ends_where_the_next_call_moves_differently() -> None:
    different = ALIKE.copy()
    different[0, 1] = 0.5
    assert chains([True, True, False, False], different) == {"cart": 0}


def test_a_circle_of_calls_ends_and_upward_chains_lead_to_callers() -> None:
    assert chains([True, True, False, True]) == {"front": 3}
    assert chains([True, True, False, False], start="db", upwards=True) == {"front": 0}


def test_edges_count_calls_failures_and_durations_and_steps_without_calls_are_normal() -> None:
    rows = [row for row in linked(conversation(slow_from=28)) if row["time"] // SECOND != START // SECOND + 30]
    edges = read_call_edges(spoken(spans=rows), START + 30 * SECOND)
    assert edges.pairs == (("cart", "db"), ("front", "cart"))
    assert edges.calls[[5, 30]].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert edges.seconds[30] == pytest.approx(edges.seconds[edges.is_healthy].mean(axis=0))
    assert (edges.measure_lasting_deviations("seconds") > 3).all()
    assert edges.errors.sum() == 0


def test_visits_are_those_of_a_simulated_walk() -> None:
    similarity = np.array([[1, 0.9, 0.3, 0.2], [0.9, 1, 0.1, 0.4], [0.3, 0.1, 1, 0.2], [0.2, 0.4, 0.2, 1.0]])
    walk, services = build_transitions(PAIRS, similarity, {"db": 1.0}, backward=0.2, beta=0.1)
    assert walk.sum(axis=1) == pytest.approx(np.ones(len(walk)))
    start = np.zeros(len(walk))
    start[[0, 2]] = 0.5
    rng = np.random.default_rng(0)
    counts = np.zeros(len(walk))
    states = rng.choice(len(walk), 4000, p=start)
    for _ in range(50):
        draws = rng.random(len(states))[:, None]
        states = (walk.cumsum(axis=1)[states] < draws).sum(axis=1).clip(max=len(walk) - 1)
        counts += np.bincount(states, minlength=len(walk))
    assert expect_visits(walk, start) == pytest.approx(counts / counts.sum(), abs=0.01)
    assert services == sorted(nx.DiGraph(PAIRS))


@pytest.mark.parametrize("method", [MicroHECL, MicroDig])
def test_the_last_service_of_a_slow_chain_is_ranked(method) -> None:
    ranking = method().localize(spoken(spans=linked(conversation(slow_from=30))), START + 31 * SECOND)
    assert "db" in ranking.ordered[: 1 if method is MicroHECL else 2]


def test_scores_of_two_calls_that_move_alike_are_those_by_hand() -> None:
    rows = []
    for second in range(40):
        db = 5.0 + second % 2 + (400.0 if second >= 30 else 0.0)
        rows += [
            span(second + 0.1, "front", "server", db + 30),
            span(second + 0.2, "front", "client", db + 11, "cart"),
            span(second + 0.3, "cart", "server", db + 10),
            span(second + 0.4, "cart", "client", db, "db"),
        ]
    view = spoken(spans=linked(rows))
    assert MicroHECL().localize(view, START + 31 * SECOND).scores == pytest.approx({"db": 1.0})
    # The call of db has similarity 1 to the call before it, so it leads to db with 0.6, to cart with 0.4 and back with
    # 0.2. The first call only leads to it. Both services are left with 1/6, so visits are as 3 to 2.
    scores = MicroDig().localize(view, START + 31 * SECOND).scores
    assert scores["db"] / scores["cart"] == pytest.approx(1.5)
    assert scores.get("front", 0.0) == 0.0


def test_without_an_anomalous_call_one_names_the_front_end_and_the_other_nobody() -> None:
    view = spoken(spans=linked(conversation()))
    assert MicroHECL(sigmas=99).localize(view, START + 31 * SECOND).ordered == ("front",)
    assert MicroDig(sigmas=99).localize(view, START + 31 * SECOND).abstains
