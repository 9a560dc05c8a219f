"""MicroCause: the walk over causes."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.causal_discovery import expected_visits, transition_matrix
from faultset.baselines.stats.dependence import LaggedLinks


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
