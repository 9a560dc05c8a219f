"""Causal searches find the node that was intervened on, in models where it is known."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.metrics.circa import (
    adjusted,
    measured_parents,
    regression_scores,
    signal_parents,
)
from faultset.baselines.methods.localization.metrics.micro_cause import expected_visits, transition_matrix
from faultset.baselines.methods.localization.metrics.rcd import FNodeTests, mean_reciprocal_ranks
from faultset.baselines.methods.localization.multimodal.torai import clusters, shares
from faultset.baselines.stats.lagged_links import LaggedLinks, lagged_links


def chain(rng: np.random.Generator, samples: int, shift: float = 0.0, nodes: int = 4) -> np.ndarray:
    """x0 drives x1 drives x2 ...; the shift is an intervention on x1."""
    columns = [rng.normal(size=samples)]
    for node in range(1, nodes):
        columns.append(1.5 * columns[-1] + rng.normal(size=samples) + (shift if node == 1 else 0.0))
    return np.column_stack(columns)


def test_the_residual_of_the_changed_series_stands_out_and_its_effects_are_explained() -> None:
    rng = np.random.default_rng(0)
    before, after = chain(rng, 60), chain(rng, 60, shift=20.0)
    mean, sd = before.mean(axis=0), before.std(axis=0)
    before, after = (before - mean) / sd, (after - mean) / sd
    alone = [regression_scores(before[:, [n]], after[:, [n]], before[:, :0], after[:, :0])[0] for n in range(4)]
    given = [
        regression_scores(before[:, [n]], after[:, [n]], before[:, [n - 1]], after[:, [n - 1]])[0] for n in range(1, 4)
    ]
    assert min(alone[2:]) > 6
    assert given[0] > 10
    assert max(given[1:]) < 6
    assert np.argmax(given) == 0


def test_without_causes_the_residual_is_n_sigma() -> None:
    rng = np.random.default_rng(1)
    before, after = rng.normal(size=(50, 3)), rng.normal(size=(9, 3)) - 8
    before = (before - before.mean(axis=0)) / before.std(axis=0)
    found = regression_scores(before, after, before[:, :0], after[:, :0])
    assert found == pytest.approx(np.abs(after).max(axis=0))


def test_regression_falls_back_to_no_causes_where_samples_are_few() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.normal(size=(4, 1)), np.full((2, 1), 7.0)
    before -= before.mean()
    many = rng.normal(size=(4, 3))
    found = regression_scores(before, after, many, many[:2])
    assert found == pytest.approx(regression_scores(before, after, many[:, :0], many[:2, :0]))


def test_architecture_draws_traffic_down_and_trouble_up() -> None:
    parents = signal_parents(("front", "cart", "db"), [("front", "cart"), ("cart", "db"), ("db", "front")], "front")
    assert ("front", "traffic") in parents["cart", "traffic"]
    assert ("db", "errors") in parents["cart", "errors"]
    assert ("cart", "latency") not in parents["db", "latency"]
    assert set(parents["db", "saturation"]) == {("db", "traffic")}
    # db -> front closes a cycle.
    assert ("db", "traffic") not in parents["front", "traffic"]


def test_what_nothing_measures_is_looked_through() -> None:
    parents = signal_parents(("front", "cart", "db"), [("front", "cart"), ("cart", "db")], "front")
    measured = {("front", "latency"), ("db", "latency")}
    assert measured_parents(parents, measured)["front", "latency"] == (("db", "latency"),)


def test_anomalous_nodes_are_lifted_by_their_largest_effect_also_through_normal_ones() -> None:
    parents = {("b", "x"): (("a", "x"),), ("c", "x"): (("b", "x"),), ("d", "x"): (("c", "x"),)}
    scores = {("a", "x"): 5.0, ("b", "x"): 1.0, ("c", "x"): 7.0, ("d", "x"): 4.0}
    assert adjusted(scores, parents) == {("a", "x"): 7.0, ("b", "x"): 0.0, ("c", "x"): 4.0, ("d", "x"): 0.0}


@pytest.mark.parametrize("seed", range(4))
def test_rcd_finds_the_intervened_node_and_not_its_effects(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.hstack([chain(rng, 600), rng.normal(size=(600, 8))])
    after = np.hstack([chain(rng, 600, shift=4.0), rng.normal(size=(600, 8))])
    mixed = rng.permutation(12)
    found = mean_reciprocal_ranks(FNodeTests(before[:, mixed], after[:, mixed]), range(12), rng)
    best = max(found, key=lambda column: found[column])
    assert mixed[best] == 1
    assert found[best] > 0.9


def test_rcd_runs_with_the_same_seed_agree() -> None:
    rng = np.random.default_rng(0)
    before, after = chain(rng, 100, nodes=9), chain(rng, 100, shift=1.0, nodes=9)
    runs = [
        mean_reciprocal_ranks(FNodeTests(before, after), range(9), np.random.default_rng(5), runs=3) for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_a_delayed_cause_is_linked_and_a_cause_of_the_cause_is_not() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(400, 4))
    series = noise.copy()
    for row in range(2, 400):
        series[row, 1] += 0.9 * series[row - 2, 0]
        series[row, 2] += 0.9 * series[row - 1, 1]
    found = lagged_links(series, lags=3)
    assert (0, 2) in found.causes[1]
    assert (1, 1) in found.causes[2]
    assert {(0, 1), (1, 2)} <= found.links
    assert (0, 2) not in found.links
    assert not any(3 in link for link in found.links)


def test_links_within_a_step_have_no_direction_and_constants_none() -> None:
    rng = np.random.default_rng(4)
    series = rng.normal(size=(120, 3))
    series[:, 1] += series[:, 0]
    series[:, 2] = 5.0
    assert lagged_links(series, lags=2).links == {(0, 1), (1, 0)}
    assert lagged_links(series[:5], lags=2).links == frozenset()


def test_the_walk_prefers_causes_and_rests_where_none_is_stronger() -> None:
    links = LaggedLinks(causes=((), (), ()), links=frozenset({(1, 0), (2, 1)}))
    found = transition_matrix(links, np.array([0.0, 0.5, 0.8]), front=0, backward=0.2)
    np.testing.assert_allclose(found[0], [0, 1, 0])
    # From 1 on to its cause 2 (0.8), back to the front end (0.2 of nothing), no rest: 0.5 < 0.8.
    np.testing.assert_allclose(found[1], [0, 0, 1])
    # From 2 back to its effect (0.2 * 0.5) or on the spot (0.8).
    np.testing.assert_allclose(found[2], [0, 0.1 / 0.9, 0.8 / 0.9])


def test_expected_visits_are_what_a_long_walk_counts() -> None:
    transitions = np.array([[0.0, 1.0, 0.0], [0.3, 0.2, 0.5], [0.0, 0.4, 0.6]])
    values, vectors = np.linalg.eig(transitions.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    found = expected_visits(transitions, 0, steps=5000)
    assert found.sum() == pytest.approx(5000)
    assert found / found.sum() == pytest.approx(stationary / stationary.sum(), abs=1e-3)


def test_shares_add_up_to_one_and_can_take_the_largest_series() -> None:
    severity = np.array([3.0, 1.0, 4.0])
    assert shares(severity, ["a", "a", "b"], ["a", "b"], largest=True) == pytest.approx([3 / 7, 4 / 7])
    assert shares(np.zeros(1), ["a"], ["a", "b"]).tolist() == [0.0, 0.0]


def test_a_service_that_stands_apart_has_a_cluster_of_its_own() -> None:
    rng = np.random.default_rng(5)
    points = np.abs(rng.normal(0.02, 0.002, (18, 4)))
    points[3] = 0.6
    labels = clusters(points, seed=0)
    assert (labels == labels[3]).sum() == 1
    assert len(clusters(points[:1], seed=0)) == 1
    assert set(clusters(np.zeros((5, 4)), seed=0)) == {0}
