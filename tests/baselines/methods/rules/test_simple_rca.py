"""SimpleRCA: slow operations."""

from __future__ import annotations

import pytest

from faultset.baselines.features.windows import TimeWindow
from faultset.baselines.methods.rules.simple_rca import slow_operations
from tests.baselines.conversations import SECOND, START, span, spoken


def test_an_operation_is_slow_from_three_times_its_healthy_percentile_on() -> None:
    rows = [span(second / 10, "cart", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "cart", "server", 29 if second % 2 else 31) for second in range(50)]
    rows += [span(second / 10, "db", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "db", "server", 29) for second in range(50)]
    rows += [span(28 + second / 10, "front", "server", 500) for second in range(50)]
    time_window = TimeWindow(
        start_ns=START + 28 * SECOND,
        end_ns=START + 40 * SECOND,
        healthy_start_ns=START,
        healthy_end_ns=START + 24 * SECOND,
    )
    assert slow_operations(spoken(spans=rows), time_window) == {("cart", "cart.Get"): pytest.approx(3.1)}
