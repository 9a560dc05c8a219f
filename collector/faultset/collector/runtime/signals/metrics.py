"""The metrics that a service exports, under the names OpenTelemetry gives them in Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
NO_RESPONSE = "0"
"""Status code of a request that got no answer at all."""

Metric = TypeVar("Metric", Counter, Gauge, Histogram)


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
        self._named: dict[str, Counter | Gauge | Histogram] = {}
        self.server = lru_cache(maxsize=None)(server.labels)
        self.client = lru_cache(maxsize=None)(client.labels)
        self.database = lru_cache(maxsize=None)(database.labels)
        self.active = lru_cache(maxsize=None)(active.labels)

    def counter(self, name: str, labels: Sequence[str], text: str) -> Counter:
        """Return a counter of that name, the same for every caller; its name in Prometheus ends in `_total`."""
        return self._get(Counter, name, labels, text)

    def gauge(self, name: str, labels: Sequence[str], text: str) -> Gauge:
        """Return a gauge of that name, the same for every caller."""
        return self._get(Gauge, name, labels, text)

    def histogram(self, name: str, labels: Sequence[str], text: str) -> Histogram:
        """Return a histogram of that name in seconds, the same for every caller."""
        return self._get(Histogram, name, labels, text, buckets=BUCKETS)

    def _get(self, kind: type[Metric], name: str, labels: Sequence[str], text: str, **options: Any) -> Metric:
        if name not in self._named:
            self._named[name] = kind(name, text, tuple(labels), registry=self.registry, **options)
        found = self._named[name]
        assert isinstance(found, kind), f"{name} is a metric of two kinds"
        return found

    def exposition(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
