"""What faults of feature flags show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode

pytestmark = pytest.mark.slow


def error_shares(e: RecordedEpisode, service: str, kind: str, delay_s: float = 10.0) -> tuple[float, float]:
    """The shares of a service's spans that end in an error, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == kind)]
    parts = e.before(mine), e.after(mine, delay_s)
    assert all(len(part) for part in parts)
    return float((parts[0]["status"] == "error").mean()), float((parts[1]["status"] == "error").mean())


def median_ms(e: RecordedEpisode, service: str) -> tuple[float, float]:
    """The median length of a service's server spans, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == "server")]
    return e.before(mine)["duration_ns"].median() / 1e6, e.after(mine, 10.0)["duration_ns"].median() / 1e6


def requests_each_second(e: RecordedEpisode, service: str) -> tuple[float, float]:
    """How many requests a service serves a second, before and after the onset."""
    mine = e.spans[(e.spans["service"] == service) & (e.spans["kind"] == "server")]
    rates = []
    for part in (e.before(mine), e.after(mine, 10.0)):
        length: pd.Timedelta = part["time"].max() - part["time"].min()
        rates.append(len(part) / length.total_seconds())
    return rates[0], rates[1]


def test_what_ad_failure_shows(recorded: Recorded) -> None:
    for e in recorded("ad-failure"):
        before, after = error_shares(e, "ad", "server")
        assert before == 0
        assert after < 0.3
        assert after > 0 or e.label.verdict == "silent", "few calls, of which a small share fails"


def test_what_ad_high_cpu_shows(recorded: Recorded) -> None:
    for e in recorded("ad-high-cpu"):
        before, after = e.series("ad", "container_cpu_usage_seconds_total")
        assert after.median() > 3 * before.median()


def test_what_ad_manual_gc_shows(recorded: Recorded) -> None:
    for e in recorded("ad-manual-gc"):
        before, after = median_ms(e, "ad")
        hanging = e.after(e.requests, 10.0, "scheduled")["outcome"].isin(["unfinished", "timeout"])
        assert after > 2 * before or (pd.isna(after) and hanging.any()), "on a slow machine no call ends any more"


def test_what_cart_failure_shows(recorded: Recorded) -> None:
    for e in recorded("cart-failure"):
        before, after = error_shares(e, "cart", "server")
        assert before == 0
        assert after > 0


def test_what_flood_homepage_shows(recorded: Recorded) -> None:
    for e in recorded("flood-homepage"):
        before, after = requests_each_second(e, "frontend")
        assert after > 1.5 * before


def test_what_image_slow_load_shows(recorded: Recorded) -> None:
    for e in recorded("image-slow-load"):
        mine = e.spans[e.spans["service"] == "frontend-proxy"]
        assert e.before(mine)["duration_ns"].max() < 5e9
        assert e.after(mine)["duration_ns"].max() >= 5e9


def test_what_kafka_queue_problems_shows(recorded: Recorded) -> None:
    for e in recorded("kafka-queue-problems"):
        before, after = e.series("fraud-detection", "kafka_consumer_group_lag")
        assert after.max() > before.max() + 50


def test_what_payment_failure_shows(recorded: Recorded) -> None:
    for e in recorded("payment-failure"):
        before, after = error_shares(e, "payment", "server")
        assert before == 0
        assert after > 0


def test_what_payment_unreachable_shows(recorded: Recorded) -> None:
    for e in recorded("payment-unreachable"):
        before, after = error_shares(e, "checkout", "client")
        assert before == 0
        assert after > 0
        served = e.spans[(e.spans["service"] == "payment") & (e.spans["kind"] == "server")]
        assert e.after(served, 10.0).empty, "nobody reaches the service, which is well"


def test_what_product_catalog_failure_shows(recorded: Recorded) -> None:
    for e in recorded("product-catalog-failure"):
        before, after = error_shares(e, "product-catalog", "server")
        assert before == 0
        assert 0 < after < 0.9, "one product of several fails"


def test_what_recommendation_cache_failure_shows(recorded: Recorded) -> None:
    for e in recorded("recommendation-cache-failure"):
        before, after = e.series("recommendation", "container_memory_working_set_bytes")
        since_s = (after.index[-1] - e.onset).total_seconds()
        assert after.iloc[-5:].mean() > (1 + 0.0007 * since_s) * before.max(), "it grows with every miss"
