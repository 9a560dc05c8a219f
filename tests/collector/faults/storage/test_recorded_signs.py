"""What faults of stores and brokers show in telemetry."""

from __future__ import annotations

import pytest

from faultset.collector.apps import load_app
from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import RecordedEpisode, assert_untouched

pytestmark = pytest.mark.slow


def test_what_slow_store_shows(recorded: Recorded) -> None:
    for e in recorded("slow-store"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["peer_service"] == e.target) & (e.spans["kind"] == "client")]
        assert e.after(calls)["duration_ns"].median() > 3 * e.before(calls)["duration_ns"].median()


def said_by_consumers(e: RecordedEpisode) -> str:
    """Log lines and error texts of spans of the services that use the target."""
    app = load_app(str(e.view.context.app))
    users = app.consumers(e.target)
    spans = e.after(e.spans[e.spans["service"].isin(users)])
    return "\n".join([*(e.messages(user) for user in users), *spans["attributes"].astype(str)])


def waits_of_consumers(e: RecordedEpisode) -> tuple[float, float]:
    """The 95th percentile in seconds of what requests to the services that use the target took, before and after."""
    users = load_app(str(e.view.context.app)).consumers(e.target)
    mine = e.spans[e.spans["service"].isin(users) & (e.spans["kind"] == "server")]
    parts = e.before(mine)["duration_ns"], e.after(mine, 5)["duration_ns"]
    return float(parts[0].quantile(0.95)) / 1e9, float(parts[1].quantile(0.95)) / 1e9


def test_what_read_only_account_shows(recorded: Recorded) -> None:
    for e in recorded("read-only-account"):
        assert_untouched(e)
        assert any(sign in said_by_consumers(e) for sign in ("NOPERM", "not authorized", "permission denied"))


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


CONSUMERS = ("accounting", "fraud-detection")


def lag_grows(e: RecordedEpisode, service: str) -> bool:
    before, after = e.series(service, "kafka_consumer_group_lag")
    return bool(after.max() > before.max())


def test_what_consumer_stopped_shows(recorded: Recorded) -> None:
    for e in recorded("consumer-stopped"):
        assert_untouched(e)
        assert any("not authorized to access this topic" in e.messages(service) for service in CONSUMERS)


def test_what_poison_message_shows(recorded: Recorded) -> None:
    for e in recorded("poison-message"):
        assert_untouched(e)
        assert all("cannot be read: its body is not JSON" in e.messages(service) for service in CONSUMERS)
        assert any(lag_grows(e, service) for service in CONSUMERS)
