"""Intervals of rates per hour."""

from __future__ import annotations

import numpy as np

from faultset.evaluators.statistics.rates import hourly_rate


def test_events_that_come_at_random_have_jeffreys_interval():
    # quantiles of a gamma distribution of shape 3.5 over twelve hours
    estimate = hourly_rate([1, 1, 1, 0], [3.0] * 4, list("abcd"))
    assert estimate.value == 0.25
    assert np.allclose((estimate.low, estimate.high), (0.0704, 0.6672), atol=2e-4)


def test_quiet_hours_leave_an_upper_end():
    estimate = hourly_rate([0, 0], [5.0, 5.0], list("ab"))
    assert estimate.low == 0.0
    assert np.isclose(estimate.high, 0.2512, atol=1e-4)
    assert hourly_rate([], [], []).reason == "no observed time without a fault"


def test_events_that_come_in_bursts_have_a_wider_interval():
    even = hourly_rate([4] * 10, [1.0] * 10, list(range(10)))
    bursts = hourly_rate([20, 20] + [0] * 8, [1.0] * 10, list(range(10)))
    assert even.value == bursts.value
    assert bursts.high - bursts.low > 2 * (even.high - even.low)
