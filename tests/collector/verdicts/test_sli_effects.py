"""Errors and latencies before and during a fault: what is significant, and what is large enough to count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultset.collector.verdicts.sli import LEAST_ERROR_EFFECT, ComparisonWindows, fisher_worse, sli_tests

SECOND = 1_000_000_000


WINDOWS = ComparisonWindows(start_ns=0, reference_end_ns=95 * SECOND, onset_ns=100 * SECOND, end_ns=200 * SECOND)


def requests(before: tuple[int, int], after: tuple[int, int]) -> pd.DataFrame:
    """Evenly spread requests, (errors, all) in the hundred seconds before the onset and after it."""
    parts = []
    for start_s, (errors, total) in ((0, before), (100, after)):
        outcome = np.full(total, "ok", dtype=object)
        outcome[np.linspace(0, total - 1, errors).astype(int)] = "http_error"
        parts.append(
            pd.DataFrame(
                {
                    "scheduled": start_s * SECOND + np.arange(total) * (90 * SECOND) // total,
                    "endpoint": "search",
                    "latency_ns": pd.array(np.full(total, 20_000_000), dtype="Int64"),
                    "outcome": outcome,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def error_rate(before: tuple[int, int], after: tuple[int, int]):
    return next(test for test in sli_tests(requests(before, after), WINDOWS) if test.test == "error-rate")


def test_many_more_errors_are_significant_and_large() -> None:
    assert fisher_worse([[5, 1995], [60, 940]]) < 1e-20
    found = error_rate((5, 2000), (60, 1000))
    assert round(found.effect, 4) == 0.0575
    assert found.p_value < 1e-20
    assert found.fires


def test_among_a_million_requests_a_significant_rise_may_be_silent() -> None:
    assert fisher_worse([[1000, 999_000], [1150, 998_850]]) < 0.01
    assert LEAST_ERROR_EFFECT > 1150e-6 - 1000e-6
    found = error_rate((50, 50_000), (200, 50_000))
    assert found.p_value < 1e-10
    assert found.effect == 0.003
    assert not found.fires


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "fires"), [(10, 34, False), (10, 36, True), (100, 140, False), (100, 151, True)]
)
def test_a_latency_counts_when_it_rises_by_half_and_by_what_somebody_notices(
    before_ms: int, after_ms: int, fires: bool
) -> None:
    found = requests((0, 1000), (0, 1000))
    is_after = found["scheduled"] >= 100 * SECOND
    found["latency_ns"] = (is_after * (after_ms - before_ms) + before_ms) * 1_000_000
    test = next(one for one in sli_tests(found, WINDOWS) if one.test == "latency")
    assert test.p_value < 1e-20
    assert test.fires is fires


@pytest.mark.parametrize(
    ("slow_s", "more_ms", "fires"),
    [
        ((130, 160), 60, False),
        ((100, 150), 60, False),
        ((100, 200), 60, True),
        ((130, 160), 120, True),
    ],
)
def test_a_latency_that_rises_by_less_than_a_host_may_make_of_it_counts_when_it_lasts(
    slow_s: tuple[int, int], more_ms: int, fires: bool
) -> None:
    found = requests((0, 1000), (0, 1000))
    is_slow = (found["scheduled"] >= slow_s[0] * SECOND) & (found["scheduled"] < slow_s[1] * SECOND)
    found["latency_ns"] = (is_slow * more_ms + 20) * 1_000_000
    test = next(one for one in sli_tests(found, WINDOWS) if one.test == "latency")
    assert test.rise_ns == more_ms * 1e6, "the p95 of the whole time tells them not apart"
    assert test.fires is fires


def test_a_latency_that_rises_on_and_off_lasts() -> None:
    found = requests((0, 1000), (0, 1000))
    is_slow = (found["scheduled"] >= 100 * SECOND) & (found["scheduled"] // (3 * SECOND) % 2 == 0)
    found["latency_ns"] = (is_slow * 60 + 20) * 1_000_000
    assert next(one for one in sli_tests(found, WINDOWS) if one.test == "latency").fires
