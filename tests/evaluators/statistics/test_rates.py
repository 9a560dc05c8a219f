"""Intervals of rates against published values."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.evaluators.statistics.rates import (
    hourly_rate,
    poisson_interval,
    wilson_interval,
)

VALUES = [1.0, 1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0]
CLUSTERS = ["a", "a", "a", "b", "b", "c", "c", "c"]


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [
        (10, 13, (0.4974, 0.9182)),
        (9, 13, (0.4237, 0.8732)),
        (13, 13, (0.7719, 1.0)),
        (2, 13, (0.0433, 0.4223)),
    ],
)
def test_wilson(k: int, n: int, expected: tuple[float, float]):
    assert np.allclose(wilson_interval(k, n), expected, atol=1e-4)


def test_poisson_rates_keep_an_upper_end_without_events():
    assert np.allclose((3 / 12, *poisson_interval(3, 12)), (0.25, 0.0516, 0.7306), atol=1e-4)
    assert np.allclose(poisson_interval(0, 10), (0.0, 0.3689), atol=1e-4)
    assert hourly_rate(0, 0.0).reason == "no observed time without a fault"
