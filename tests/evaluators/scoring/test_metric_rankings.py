"""Rankings of metrics against vectors computed by hand."""

from __future__ import annotations

from faultset.evaluators.scoring.rankings import metric_matches, score_metrics

CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_metrics_are_ranked_with_their_service():
    ranked = [("cart", "cpu", 5.0), ("db", "io_time_seconds_rate", 4.0), ("cart", "mem", 1.0)]
    score = score_metrics(ranked, [("db", "io_*")])
    assert (score.ac(1), score.ac(3), score.reciprocal_rank) == (0.0, 1.0, 0.5)
    assert score_metrics(ranked, [("db", "cpu")]).ac(5) == 0.0
    assert score_metrics([], [("db", "cpu")]).reciprocal_rank == 0.0
    several = score_metrics(ranked, [("cart", "cpu"), ("cart", "mem")])
    assert (several.ac(1), several.ac(3)) == (1.0, 1.0)


def test_a_derived_metric_stands_for_what_it_was_made_of():
    assert metric_matches("http_server_request_duration_seconds_mean", "http_server_request_duration_seconds")
    assert metric_matches('cpu_seconds_total{mode="user"}', "cpu_seconds_total")
    assert not metric_matches("cpu_seconds_total", "memory")
