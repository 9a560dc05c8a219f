"""What faults of stores and brokers show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import CONSUMERS, RecordedEpisode, assert_untouched, said_by_consumers

pytestmark = pytest.mark.slow


def waits_of_consumers(e: RecordedEpisode) -> tuple[float, float]:
    """The 95th percentile in seconds of what requests to the services that use the target took, before and after."""
    users = load_app(str(e.view.context.app)).consumers(e.target)
    mine = e.spans[e.spans["service"].isin(users) & (e.spans["kind"] == "server")]
    parts = e.before(mine)["duration_ns"], e.after(mine, 5)["duration_ns"]
    return float(parts[0].quantile(0.95)) / 1e9, float(parts[1].quantile(0.95)) / 1e9


def lag_grows(e: RecordedEpisode, service: str) -> bool:
    before, after = e.series(service, "kafka_consumer_group_lag")
    return bool(after.max() > before.max())


def test_what_volume_full_shows(recorded: Recorded) -> None:
    for e in recorded("volume-full"):
        assert_untouched(e)
        assert "MISCONF" in said_by_consumers(e) or "File too large" in e.messages(e.target)


def test_what_store_memory_limit_shows(recorded: Recorded) -> None:
    for e in recorded("store-memory-limit"):
        assert e.most_restarts(e.target) == 0
        assert "command not allowed when used memory > 'maxmemory'" in said_by_consumers(e)


def test_what_connection_limit_shows(recorded: Recorded) -> None:
    for e in recorded("connection-limit"):
        assert e.most_restarts(e.target) == 0
        assert e.errors_at_client() > 0 or waits_of_consumers(e)[1] > 0.2


def test_what_locked_store_shows(recorded: Recorded) -> None:
    for e in recorded("locked-store"):
        assert_untouched(e)
        before, after = waits_of_consumers(e)
        assert after > max(0.2, 2 * before)


def test_what_heavy_query_shows(recorded: Recorded) -> None:
    for e in recorded("heavy-query"):
        assert_untouched(e)
        before, after = waits_of_consumers(e)
        assert after > max(0.1, 2 * before)
        used = [part.mean() for part in e.series(e.target, "container_cpu_usage_seconds_total")]
        assert used[1] > 3 * used[0]


def test_what_poison_message_shows(recorded: Recorded) -> None:
    for e in recorded("poison-message"):
        assert_untouched(e)
        assert all("cannot be read: its body is not JSON" in e.messages(service) for service in CONSUMERS)
        assert any(lag_grows(e, service) for service in CONSUMERS)
