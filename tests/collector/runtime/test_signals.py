"""Logs and metrics."""

from __future__ import annotations

import pytest
from prometheus_client import Histogram
from prometheus_client.parser import text_string_to_metric_families

from faultset.collector.apps import load_app
from faultset.collector.apps.tidb.persona import PERSONA
from faultset.collector.runtime.persona import Persona
from faultset.collector.runtime.signals import DATABASE_BUCKETS, HTTP_BUCKETS, Log, Metrics
from faultset.datasets.telemetry_formats.log_lines import parse_line


def test_the_level_of_a_neutral_line_is_recognised_when_it_is_collected(capfd: pytest.CaptureFixture[str]) -> None:
    log = Log(Persona())
    log.trace("/cart", "a request")
    log.warning("cart", "no such item")
    lines = [parse_line(line) for line in capfd.readouterr().out.splitlines()]
    assert [(line.level, line.message) for line in lines] == [
        ("trace", "/cart: a request"),
        ("warning", "cart: no such item"),
    ]


def grids(metrics: Metrics) -> dict[str, tuple[float, ...]]:
    """Return the upper bounds of each histogram with samples."""
    bounds: dict[str, dict[float, None]] = {}
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bounds.setdefault(family.name, {})[float(sample.labels["le"])] = None
    return {name: tuple(grid)[:-1] for name, grid in bounds.items()}


def test_histograms_have_the_grids_of_their_conventions() -> None:
    metrics = Metrics()
    metrics.observe_request("/hotels", "GET", "200", 0.01)
    metrics.database("geo", "redis", "GET", "OK").observe(0.001)
    metrics.histogram("messages", (), "Of the application.").observe(0.1)
    assert grids(metrics) == {
        "http_server_request_duration_seconds": HTTP_BUCKETS,
        "db_client_operation_duration_seconds": DATABASE_BUCKETS,
        "messages": Histogram.DEFAULT_BUCKETS[:-1],
    }


def test_components_of_tidb_export_their_own_histograms_for_routes_that_exist() -> None:
    app = load_app("tidb")
    for service, original in PERSONA.request_histograms.items():
        routes = {operation.rpartition(" ")[2] for operation in app.services[service].operations}
        assert set(original.values) <= routes
        metrics = Metrics(original)
        for route in routes:
            metrics.observe_request(route, "POST", "200", 0.01)
        text = metrics.exposition().decode()
        assert grids(metrics)[original.name] == original.buckets
        counts = [line for line in text.splitlines() if line.startswith(f"{original.name}_count")]
        assert len(counts) == len(set(original.values.values()))
