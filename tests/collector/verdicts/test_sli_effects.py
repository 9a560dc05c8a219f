"""Errors before and during a fault: what is significant, and what is large enough to count."""

from __future__ import annotations

import numpy as np
import pandas as pd

from faultset.collector.verdicts.sli import LEAST_ERROR_EFFECT, fisher_worse, sli_tests

SECOND = 1_000_000_000


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
    window = {"start_ns": 0, "reference_end_ns": 95 * SECOND, "onset_ns": 100 * SECOND, "end_ns": 200 * SECOND}
    return next(test for test in sli_tests(requests(before, after), **window) if test.test == "error-rate")


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
