"""What faults of stores show in telemetry."""

from __future__ import annotations

import pytest

from tests.collector.faults.conftest import Recorded

pytestmark = pytest.mark.slow


def test_what_slow_store_shows(recorded: Recorded) -> None:
    for e in recorded("slow-store"):
        assert e.most_restarts(e.target) == 0
        calls = e.spans[(e.spans["peer_service"] == e.target) & (e.spans["kind"] == "client")]
        assert e.after(calls)["duration_ns"].median() > 3 * e.before(calls)["duration_ns"].median()
