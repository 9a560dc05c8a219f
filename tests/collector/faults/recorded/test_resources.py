"""What faults of CPU and memory show in telemetry, as they do on a cluster."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded
from tests.collector.faults.recorded_episodes import assert_untouched

pytestmark = pytest.mark.slow


def test_what_cpu_throttle_shows(recorded: Recorded) -> None:
    for e in recorded("cpu-throttle"):
        assert_untouched(e)
        before, after = e.series(e.target, "container_cpu_cfs_throttled_periods_total")
        assert after.mean() > max(0.5, 5 * before.mean())


def test_what_cpu_hog_shows(recorded: Recorded) -> None:
    for e in recorded("cpu-hog"):
        assert_untouched(e)
        before, after = e.series(e.target, "container_cpu_usage_seconds_total")
        assert after.median() > 3 * before.median()
        assert after.quantile(0.9) <= 1.25 * e.app.services[e.target].cpu_limit, "it stays inside the pod's limit"


def test_what_memory_limit_shows(recorded: Recorded) -> None:
    for e in recorded("memory-limit"):
        assert "OOMKilled" in {c.get("reason") for c in e.containers(e.target)}
        assert e.most_restarts(e.target) >= 1
