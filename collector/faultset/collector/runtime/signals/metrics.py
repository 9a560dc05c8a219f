"""The metrics that a service exports, under the names OpenTelemetry gives them in Prometheus."""

from __future__ import annotations

from functools import lru_cache

from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
NO_RESPONSE = "0"
"""Status code of a request that got no answer at all."""


class Metrics:
    """Counters of one process; label sets are looked up once and kept."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        server = Histogram(
            "http_server_request_duration_seconds",
            "Duration of HTTP server requests.",
            ["http_route", "http_request_method", "http_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        client = Histogram(
            "http_client_request_duration_seconds",
            "Duration of HTTP client requests.",
            ["server_address", "http_route", "http_request_method", "http_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        database = Histogram(
            "db_client_operation_duration_seconds",
            "Duration of database client operations.",
            ["server_address", "db_system_name", "db_operation_name", "db_response_status_code"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        active = Gauge(
            "http_server_active_requests",
            "Number of active HTTP server requests.",
            ["http_request_method"],
            registry=self.registry,
        )
        self.server = lru_cache(maxsize=None)(server.labels)
        self.client = lru_cache(maxsize=None)(client.labels)
        self.database = lru_cache(maxsize=None)(database.labels)
        self.active = lru_cache(maxsize=None)(active.labels)

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
