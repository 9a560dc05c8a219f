"""RCD ranks the node with the intervention first."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.causal_discovery import (
    FNodeTests,
    expected_visits,
    mean_reciprocal_ranks,
    transition_matrix,
)
from faultset.baselines.methods.localization.torai import find_clusters, measure_count_severity, shares
from faultset.baselines.stats.dependence import LaggedLinks
from tests.baselines.metric_series import chain


@pytest.mark.parametrize("seed", range(4))
def test_rcd_finds_the_intervened_node_and_not_its_effects(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = np.hstack([chain(rng, 600), rng.normal(size=(600, 8))])
    after = np.hstack([chain(rng, 600, shift=4.0), rng.normal(size=(600, 8))])
    mixed = rng.permutation(12)
    result = mean_reciprocal_ranks(FNodeTests(before[:, mixed], after[:, mixed]), range(12), rng)
    best = max(result, key=lambda column: result[column])
    assert mixed[best] == 1
    assert result[best] > 0.9


def test_rcd_runs_with_the_same_seed_agree() -> None:
    rng = np.random.default_rng(0)
    before, after = chain(rng, 100, nodes=9), chain(rng, 100, shift=1.0, nodes=9)
    runs = [
        mean_reciprocal_ranks(FNodeTests(before, after), range(9), np.random.default_rng(5), runs=3) for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_the_walk_prefers_causes_and_rests_where_none_is_stronger() -> None:
    links = LaggedLinks(causes=((), (), ()), links=frozenset({(1, 0), (2, 1)}))
    result = transition_matrix(links, np.array([0.0, 0.5, 0.8]), front=0, backward=0.2)
    np.testing.assert_allclose(result[0], [0, 1, 0])
    # From 1 to its cause 2 (0.8), back to the front end (0.2 · 0); no self-loop, because 0.5 < 0.8.
    np.testing.assert_allclose(result[1], [0, 0, 1])
    # From 2 back to its effect (0.2 · 0.5), or stay (0.8).
    np.testing.assert_allclose(result[2], [0, 0.1 / 0.9, 0.8 / 0.9])


def test_expected_visits_are_what_a_long_walk_counts() -> None:
    transitions = np.array([[0.0, 1.0, 0.0], [0.3, 0.2, 0.5], [0.0, 0.4, 0.6]])
    values, vectors = np.linalg.eig(transitions.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    result = expected_visits(transitions, 0, steps=5000)
    assert result.sum() == pytest.approx(5000)
    assert result / result.sum() == pytest.approx(stationary / stationary.sum(), abs=1e-3)


def test_a_template_that_falls_silent_is_as_severe_as_one_that_doubles() -> None:
    reference = np.full((10, 2), 9.0)
    assert measure_count_severity(reference, np.array([[0.0, 18.0]])).tolist() == [3.0, 3.0]


def test_shares_add_up_to_one_and_can_take_the_largest_series() -> None:
    severity = np.array([3.0, 1.0, 4.0])
    assert shares(severity, ["a", "a", "b"], ["a", "b"], largest=True) == pytest.approx([3 / 7, 4 / 7])
    assert shares(np.zeros(1), ["a"], ["a", "b"]).tolist() == [0.0, 0.0]


def test_an_outlying_service_has_a_separate_cluster() -> None:
    rng = np.random.default_rng(5)
    points = np.abs(rng.normal(0.02, 0.002, (18, 4)))
    points[3] = 0.6
    labels = find_clusters(points, seed=0)
    assert (labels == labels[3]).sum() == 1
    assert len(find_clusters(points[:1], seed=0)) == 1
    assert set(find_clusters(np.zeros((5, 4)), seed=0)) == {0}
