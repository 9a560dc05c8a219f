"""Bursts make answers slow without a fault: latencies are compared among requests at the same load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from faultset.collector.load.workloads.patterns import Arrivals, parse_pattern
from faultset.collector.verdicts.sli import ComparisonWindows, sli_tests
from faultset.collector.verdicts.steadiness import earlier_changes
from faultset.collector.verdicts.stratified_latencies import LOAD, compare_stratified, with_load

SECOND = 1_000_000_000
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


def test_bursts_before_the_injection_hardly_ever_make_an_episode_void() -> None:
    episodes = [episode(seed) for seed in range(20)]
    assert sum(moved(frame) for frame in episodes) >= 4, "the load of this test is one at which it matters"
    assert sum(moved(with_load(frame)) for frame in episodes) <= 1


def test_a_fault_that_slows_answers_is_found_at_any_load() -> None:
    for seed in range(5):
        frame = with_load(episode(seed, slower_from_s=ONSET_S, slower=2.0))
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
    before, loads = rng.lognormal(0, 0.1, 200), rng.uniform(10, 20, 200)
    assert compare_stratified(before, 9 * before, loads, loads + 100) is None
    found = compare_stratified(before, before, loads, loads)
    assert found is not None
    assert 0.9 < found[1] / found[0] < 1.1
    assert found[2] > 0.05
