"""TORAI: severities and clusters of services."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.torai import find_clusters, measure_count_severity, shares


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
