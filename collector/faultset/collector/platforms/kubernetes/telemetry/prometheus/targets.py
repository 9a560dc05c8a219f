"""What a Prometheus server says of itself: how often it scrapes, which labels it adds, the types of its metrics."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from faultset.collector.platforms.kubernetes.telemetry.endpoints import Endpoint
from faultset.core.errors import PlatformError

_DURATION = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
_SUFFIX_KINDS = (("_bucket", "bucket"), ("_sum", "sum"), ("_count", "count"))


def duration_s(text: str) -> float:
    """Return a duration in Prometheus' notation as seconds.

    >>> duration_s("1m30s")
    90.0
    """
    return sum(int(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))


@dataclass(kw_only=True)
class Targets:
    """Scraped addresses and the labels that scraping adds to their series.

    What is known of a target that has gone stays known.
    """

    labels: dict[tuple[str, str], Labels] = field(default_factory=dict)
    """By job and instance."""
    names: dict[str, set[str]] = field(default_factory=dict)
    """By job: names of the labels that any of its targets has."""
    intervals_s: dict[str, float] = field(default_factory=dict)
    """By scrape pool."""
    container_pool: str | None = None
    """Scrape pool of the kubelets' container metrics."""

    def learn(self, endpoint: Endpoint) -> None:
        """Ask the server; a server without this interface (some stores that speak PromQL) leaves it empty."""
        try:
            answer = endpoint.get("/api/v1/targets", {"state": "active"})
            active = answer["data"]["activeTargets"]
        except (PlatformError, KeyError, TypeError):
            return
        for target in active:
            labels = dict(target.get("labels") or {})
            job, instance = labels.get("job", ""), labels.get("instance", "")
            self.labels[job, instance] = labels
            self.names.setdefault(job, set()).update(labels)
            pool = target.get("scrapePool") or job
            if target.get("scrapeInterval"):
                self.intervals_s[pool] = duration_s(target["scrapeInterval"])
            if "cadvisor" in str(target.get("scrapeUrl", "")):
                self.container_pool = pool


Labels = Mapping[str, str]


def scrape_interval_s(endpoint: Endpoint, targets: Targets) -> float:
    """Return the time between two scrapes of the containers, else the server's default.

    Raises
    ------
    PlatformError
        The server says neither.
    """
    if targets.container_pool in targets.intervals_s:
        return targets.intervals_s[targets.container_pool]
    with contextlib.suppress(PlatformError, KeyError, TypeError, yaml.YAMLError):
        config = yaml.safe_load(endpoint.get("/api/v1/status/config")["data"]["yaml"])
        return duration_s(str(config["global"]["scrape_interval"]))
    if targets.intervals_s:
        return max(targets.intervals_s.values())
    raise PlatformError(f"{endpoint.name} does not say how often it scrapes, neither in its targets nor in its config")


class MetricTypes:
    """Types and units of metrics as their exporters declare them."""

    def __init__(self, metadata: Mapping[str, Any]):
        self._types = {name: entries[0].get("type", "") for name, entries in metadata.items() if entries}
        self.units = {
            name: entries[0]["unit"] for name, entries in metadata.items() if entries and entries[0].get("unit")
        }

    @classmethod
    def asked(cls, endpoint: Endpoint) -> MetricTypes:
        """Ask the server; without an answer the names have to tell."""
        try:
            return cls(endpoint.get("/api/v1/metadata")["data"] or {})
        except (PlatformError, KeyError, TypeError):
            return cls({})

    def declares_histogram(self, metric: str) -> bool:
        """Return whether a metric is declared to be a histogram of cumulative counts or of present values."""
        return self._types.get(metric) in ("histogram", "gaugehistogram")

    def holds_gauges(self, metric: str) -> bool:
        """Return whether a metric is a histogram of present values, whose counts may fall."""
        return self._types.get(metric) == "gaugehistogram"

    def kind(self, metric: str, labels: Mapping[str, str]) -> str:
        """Return counter, gauge, bucket, sum or count.

        An exporter of OpenMetrics declares `requests` for the counter `requests_total`.
        """
        for suffix, kind in _SUFFIX_KINDS:
            family = metric.removesuffix(suffix)
            if family != metric and self._types.get(family) in ("histogram", "summary"):
                return kind
        declared = self._types.get(metric) or self._types.get(metric.removesuffix("_total"), "")
        if declared == "counter":
            return "counter"
        if declared and declared != "unknown":
            return "gauge"
        if "le" in labels and metric.endswith("_bucket"):
            return "bucket"
        return "counter" if metric.endswith("_total") else "gauge"
