"""Latencies of services as seen by their callers."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.features.calls import (
    ServiceLatency,
    correlate_with_front,
    correlations,
    find_anomalous_services,
    measure_latency,
    read_call_graph,
    read_call_series,
)
from tests.baselines.conversations import SECOND, START, conversation, span, spoken


def test_a_call_counts_for_the_called_and_servers_speak_only_where_no_client_does() -> None:
    rows = [
        span(0.1, "front", "server", 30),
        span(0.2, "front", "client", 20, "cart"),
        span(0.3, "cart", "server", 10),
        span(0.6, "front", "client", 40, "cart", status="error"),
        span(5.5, "front", "server", 50),
    ]
    result = read_call_series(spoken(spans=rows))
    assert result.services == ("cart", "front")
    assert result.seconds[0] == pytest.approx([0.030, 0.030])
    assert result.seconds[5] == pytest.approx([np.nan, 0.050], nan_ok=True)
    assert result.errors.sum(axis=0).tolist() == [1.0, 0.0]
    assert result.pairs == (("front", "cart"),)


def test_the_declared_call_graph_goes_before_the_seen_one() -> None:
    rows = [span(0.2, "front", "client", 20, "cart"), span(0.2, "front", "client", 20, "who-is-this")]
    assert read_call_graph(spoken(spans=rows)) == (("front", "cart"),)
    declared = (("cart", "db"), ("cart", "cart"), ("cart", "elsewhere"))
    assert read_call_graph(spoken(spans=rows, calls=declared)) == (("cart", "db"),)


def test_latency_is_in_healthy_spreads_and_steps_without_calls_are_normal() -> None:
    rows = [row for row in conversation(slow_from=28) if row["time"] != START + round(30.4 * SECOND)]
    result = measure_latency(spoken(spans=rows), START + 30 * SECOND)
    assert result.services == ("cart", "db", "front")
    assert result.reference.shape == (24, 3)
    assert result.values.shape == (12, 3)
    assert result.reference.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    assert result.values[2, 1] == 0.0
    assert set(find_anomalous_services(result)) == {"cart", "db", "front"}


def test_correlations_are_pearsons() -> None:
    rng = np.random.default_rng(1)
    series, target = rng.normal(size=(50, 3)), rng.normal(size=50)
    series[:, 1] = 4.0
    expected = [np.corrcoef(series[:, 0], target)[0, 1], 0.0, np.corrcoef(series[:, 2], target)[0, 1]]
    assert correlations(series, target) == pytest.approx(expected)


def test_a_constant_front_end_is_similar_to_no_service() -> None:
    flat = ServiceLatency(services=("cart", "front"), reference=np.zeros((5, 2)), values=np.eye(2)[[0, 0]])
    assert correlate_with_front(flat, "front") == {}
    assert correlate_with_front(flat, "elsewhere") == {}
    assert correlate_with_front(flat, "cart") == {"cart": pytest.approx(1.0), "front": 0.0}


SHARE = np.array([0, 0, 1 / 3, 1, 1, 1 / 3])


def test_correlation_of_the_worked_example_orders_alike() -> None:
    series = np.array([(1, 1, 1, 5, 5, 1), (1, 1, 5, 5, 5, 1), (1, 2, 1, 2, 1, 2), (9,) * 6], dtype=float)
    assert np.abs(correlations(series.T, SHARE)) == pytest.approx([0.9449, 0.8018, 0, 0], abs=1e-4)
