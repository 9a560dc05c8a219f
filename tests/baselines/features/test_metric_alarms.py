"""Flags and scores of metric series."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.features.metric_alarms import (
    compute_queue_features,
    flag_dense_steps,
    kde_tail,
    kpi_flags,
    rank_by_series,
    reference_density,
    wma_residuals,
)

PATTERN = np.array([0, 2, 1, -1, 0, 2, 1, -1], dtype=float)
CALM = np.array([0, 0, 1, -1, 0, 0, 1, -1], dtype=float)
REFERENCE = np.stack([10 + PATTERN, 50 + CALM, 20 + PATTERN, 100 + PATTERN], axis=1)
VALUES = np.array([(10, 30, 31, 30), (50, 50, 51, 49), (21, 21, 40, 41), (100, 10, 9, 10)], dtype=float).T
SERVICES = ["cart", "cart", "front", "db"]


def test_kde_tail_of_the_worked_example() -> None:
    assert kde_tail(REFERENCE, VALUES)[0, 0] == pytest.approx(0.7528, abs=1e-4)
    result = kde_tail(REFERENCE[:, :1], np.array([[13.0], [14.0], [15.0]])).ravel()
    assert result == pytest.approx([0.05402, 0.00284, 0.000036], abs=5e-6)


def test_flags_and_trigger_of_the_worked_example() -> None:
    flags = kpi_flags(REFERENCE, VALUES, window=4)
    assert flags.T.astype(int).tolist() == [[0, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]]
    features = compute_queue_features(flags, SERVICES)
    assert features.distinct.tolist() == [0, 2, 3, 3]
    assert features.length.tolist() == [0, 2, 5, 8]
    assert features.services.tolist() == [0, 2, 3, 3]
    assert int(flag_dense_steps(features, 0.0).argmax()) + 1 == 2


def test_moving_average_weighs_the_newest_value_most() -> None:
    series = np.array([[1.0], [2.0], [3.0], [10.0]])
    result = wma_residuals(series, 3)
    assert np.isnan(result[:3]).all()
    assert result[3, 0] == pytest.approx(10 - (3 * 3 + 2 * 2 + 1) / 6)


def test_a_jump_within_the_usual_range_of_a_trend_is_flagged() -> None:
    trend = np.linspace(0, 100, 60)[:, None]
    values = np.array([[101.7], [50.0], [105.0]])
    assert kpi_flags(trend, values, window=4)[:, 0].tolist() == [False, True, True]
    assert not kpi_flags(trend, values, window=4, combine="and")[1, 0]


def test_queue_forgets_what_is_older_than_its_window() -> None:
    flags = np.zeros((30, 2), dtype=bool)
    flags[3] = True
    length = compute_queue_features(flags, ["a", "b"], 10).length
    assert length.tolist() == [0] * 3 + [2] * 10 + [0] * 17


def test_healthy_density_is_low_for_healthy_data() -> None:
    rng = np.random.default_rng(0)
    limit = reference_density(rng.normal(10, 1, (60, 20)), ["a"] * 20, window=4)
    assert 0 <= limit < 0.1


def test_services_are_ordered_by_their_best_series() -> None:
    series = (("cart", "cpu"), ("cart", "mem"), ("front", "lat"), ("db", "rps"))
    ranking = rank_by_series(np.array([18.3, 1.4, 18.2, 81.8]), series, ("cart", "db", "front"), detail="z")
    assert ranking.ordered == ("db", "cart", "front")
    assert [item.subject for item in ranking.evidence] == ["rps", "cpu", "lat", "mem"]
