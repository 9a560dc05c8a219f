"""Errors and latencies before and during a fault: what is significant, and what is large enough to count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from faultset.collector.load.patterns import Arrivals, parse_pattern
from faultset.collector.verdicts.client_requests import (
    LOAD,
    MIN_ERROR_EFFECT,
    ComparisonWindows,
    TimedRequests,
    compare_latencies,
    earlier_changes,
    sli_tests,
    with_load,
)
from faultset.collector.verdicts.exact_tests import (
    compute_binomial_cdf,
    compute_binomial_interval,
    compute_fisher_p_value,
    compute_normal_sf,
)

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
    found = error_rate((5, 2000), (60, 1000))
    assert round(found.effect, 4) == 0.0575
    assert found.p_value < 1e-20
    assert found.fires


def test_among_a_million_requests_a_significant_rise_may_be_silent() -> None:
    assert MIN_ERROR_EFFECT > 1150e-6 - 1000e-6
    found = error_rate((50, 50_000), (200, 50_000))
    assert found.p_value < 1e-10
    assert found.effect == 0.003
    assert not found.fires


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "fires"), [(10, 34, False), (10, 36, True), (100, 290, False), (100, 310, True)]
)
def test_a_latency_counts_when_it_triples_and_rises_by_25_ms(before_ms: int, after_ms: int, fires: bool) -> None:
    found = requests((0, 1000), (0, 1000))
    is_after = found["scheduled"] >= 100 * SECOND
    found["latency_ns"] = (is_after * (after_ms - before_ms) + before_ms) * 1_000_000
    test = next(one for one in sli_tests(found, WINDOWS) if one.test == "latency")
    assert test.p_value < 1e-20
    assert test.fires is fires


@pytest.mark.parametrize(
    ("slow_s", "more_ms", "fires"),
    [((130, 160), 60, False), ((130, 160), 600, False), ((100, 200), 60, True), ((130, 190), 60, True)],
)
def test_a_slow_spell_of_the_host_counts_only_if_it_fills_most_of_the_time_after_the_onset(
    slow_s: tuple[int, int], more_ms: int, fires: bool
) -> None:
    frame = requests((0, 1000), (0, 1000))
    is_slow = (frame["scheduled"] >= slow_s[0] * SECOND) & (frame["scheduled"] < slow_s[1] * SECOND)
    frame["latency_ns"] = (is_slow * more_ms + 20) * 1_000_000
    test = next(test for test in sli_tests(frame, WINDOWS) if test.test == "latency")
    assert test.rise_ns == more_ms * 1e6, "the p95 cannot tell a spell from a fault"
    assert test.fires is fires


def test_a_latency_that_rises_on_and_off_counts() -> None:
    found = requests((0, 1000), (0, 1000))
    is_slow = (found["scheduled"] >= 100 * SECOND) & (found["scheduled"] // (3 * SECOND) % 2 == 0)
    found["latency_ns"] = (is_slow * 60 + 20) * 1_000_000
    assert next(one for one in sli_tests(found, WINDOWS) if one.test == "latency").fires


VIEW_S, ONSET_S, END_S = 360, 180, 360


def episode(seed: int, *, slower_from_s: float = END_S, slower: float = 1.0, rate_rps: float = 20.0) -> pd.DataFrame:
    """Requests of a bursty load; each takes the longer the more came in the two seconds before it."""
    pattern = replace(parse_pattern("bursty:burst=3"), horizon_s=VIEW_S)
    arrivals, gaps, times = Arrivals(pattern, seed), np.random.default_rng([seed, 1]), []
    while arrivals.elapsed_s < END_S:
        arrivals.after(float(gaps.exponential()), rate_rps)
        times.append(arrivals.elapsed_s)
    at = np.array(times)
    recent = np.arange(len(at)) - np.searchsorted(at, at - 2.0)
    latency_s = 0.01 * (1 + recent / (2 * rate_rps)) ** 2 * np.random.default_rng([seed, 2]).lognormal(0, 0.3, len(at))
    latency_s = np.where(at >= slower_from_s, slower, 1.0) * latency_s
    return pd.DataFrame(
        {
            "scheduled": (at * SECOND).astype("int64"),
            "endpoint": "GET /hotels",
            "outcome": "ok",
            "status": 200,
            "latency_ns": pd.array((latency_s * SECOND).astype("int64"), dtype="Int64"),
        }
    )


def moved(frame: pd.DataFrame) -> bool:
    return bool(earlier_changes(frame, start_ns=0, onset_ns=ONSET_S * SECOND))


def test_bursts_before_the_injection_leave_an_episode_valid() -> None:
    assert not any(moved(with_load(episode(seed))) for seed in range(20))


def test_a_fault_that_slows_answers_is_found_at_any_load() -> None:
    for seed in range(5):
        frame = with_load(episode(seed, slower_from_s=ONSET_S, slower=4.0))
        windows = ComparisonWindows(
            start_ns=0, reference_end_ns=144 * SECOND, onset_ns=ONSET_S * SECOND, end_ns=END_S * SECOND
        )
        assert any(test.fires for test in sli_tests(frame, windows))
        assert not moved(frame)


def test_load_is_what_came_in_the_last_seconds() -> None:
    times = np.concatenate([np.arange(0, 10, 0.1), np.arange(10, 20, 0.02)])
    load = with_load(pd.DataFrame({"scheduled": (times * SECOND).astype("int64")}))[LOAD].to_numpy()
    assert 8 < load[90] < 12
    assert 40 < load[-1] < 55


def test_requests_at_more_load_than_ever_before_are_not_compared() -> None:
    rng = np.random.default_rng(0)
    times, latencies, loads = np.arange(200) * SECOND // 3, rng.lognormal(0, 0.1, 200), rng.uniform(10, 20, 200)
    before = TimedRequests(times, latencies, loads)
    after = TimedRequests(times + 100 * SECOND, latencies, loads)
    assert compare_latencies(before, TimedRequests(after.times_ns, 9 * latencies, loads + 100), WINDOWS) is None
    shift = compare_latencies(before, after, WINDOWS)
    assert shift is not None
    assert 0.9 < shift.ratio < 1.1
    assert 0.9 < shift.block_ratio < 1.1
    assert shift.p_value > 0.05


def test_a_slow_healthy_spell_raises_the_bar_for_latencies_after_the_onset() -> None:
    frame = requests((0, 1000), (0, 1000))
    at_s = frame["scheduled"] // SECOND
    frame["latency_ns"] = (20 + 60 * (at_s >= 100) + 60 * (at_s < 35)) * 1_000_000
    assert not any(test.fires for test in sli_tests(frame, WINDOWS))


def test_tails_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for z in (-40.0, -1.5, 0.0, 2.0, 12.0, 37.0):
        assert compute_normal_sf(z) == pytest.approx(stats.norm.sf(z), rel=1e-9)
    fisher_exact: Any = stats.fisher_exact
    for number in range(200):
        trials = int(rng.integers(1, 2000))
        successes = int(rng.integers(0, trials + 1))
        scipy_p = stats.binomtest(successes, trials, 0.9, alternative="less").pvalue
        assert compute_binomial_cdf(successes, trials, 0.9) == pytest.approx(scipy_p, rel=1e-8, abs=1e-290)
        if number % 5 == 0:  # bisection takes a hundred times as long
            interval = stats.binomtest(successes, trials).proportion_ci(0.95)
            bounds = (interval.low, interval.high)
            assert compute_binomial_interval(successes, trials) == pytest.approx(bounds, abs=1e-12)
        table = rng.integers(0, rng.choice([3, 50, 5000]), (2, 2)).tolist()
        scipy_p = fisher_exact(np.flip(table, axis=0), alternative="greater").pvalue
        assert compute_fisher_p_value(table) == pytest.approx(scipy_p, rel=1e-7, abs=1e-290), table


def test_the_interval_of_none_and_all_ends_at_0_and_1() -> None:
    assert compute_binomial_interval(0, 7)[0] == 0.0
    assert compute_binomial_interval(7, 7)[1] == 1.0


def test_many_more_errors_are_significant_also_among_a_million_requests() -> None:
    assert compute_fisher_p_value([[5, 1995], [60, 940]]) < 1e-20
    assert compute_fisher_p_value([[1000, 999_000], [1150, 998_850]]) < 0.01
    assert compute_fisher_p_value([[1000, 1000], [100, 900]]) == pytest.approx(1.0)
