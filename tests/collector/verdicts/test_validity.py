"""An episode whose client requests moved by what its fault cannot have caused is void."""

from __future__ import annotations

import numpy as np
import pandas as pd

from faultset.collector.verdicts.sli import as_seen_at, sli_tests
from faultset.collector.verdicts.validity import moved_before, void_reason

SECOND = 1_000_000_000
START, REFERENCE_END, ONSET, END = 0, 36 * SECOND, 45 * SECOND, 90 * SECOND
REACHED = {"GET /hotels": frozenset({"frontend", "search", "geo"}), "POST /user": frozenset({"frontend", "user"})}


def requests(slow_from_s: float, slow_to_s: float, endpoints: tuple[str, ...] = tuple(REACHED)) -> pd.DataFrame:
    """Twenty requests a second for 90 s that take 10 ms; those of some endpoints four times as long for a while."""
    rng = np.random.default_rng(1)
    scheduled = np.arange(START, END, SECOND // 20)
    endpoint = np.array(list(REACHED))[rng.integers(0, 2, len(scheduled))]
    latency = rng.normal(10e6, 1e6, len(scheduled))
    slow = (scheduled >= slow_from_s * SECOND) & (scheduled < slow_to_s * SECOND) & np.isin(endpoint, endpoints)
    latency = np.where(slow, 4 * latency, latency)
    return pd.DataFrame(
        {
            "scheduled": scheduled,
            "endpoint": endpoint,
            "outcome": "ok",
            "status": 200,
            "latency_ns": pd.array(latency.astype("int64"), dtype="Int64"),
        }
    )


def reason(frame: pd.DataFrame, *faulty: str) -> str:
    seen = as_seen_at(frame, END)
    tests = sli_tests(seen, start_ns=START, reference_end_ns=REFERENCE_END, onset_ns=ONSET, end_ns=END)
    return void_reason(frame, tests, faulty=faulty, services_reached=REACHED, start_ns=START, onset_ns=ONSET)


def test_a_quiet_episode_is_valid() -> None:
    assert reason(requests(0, 0), "geo") == ""
    assert reason(requests(0, 0)) == ""


def test_requests_that_move_after_the_injection_are_valid_when_they_can_reach_the_target() -> None:
    assert reason(requests(50, 90), "geo") == ""
    assert reason(requests(50, 90, ("POST /user",)), "user") == ""


def test_requests_that_moved_25_s_before_the_injection_make_the_episode_void() -> None:
    found = reason(requests(20, 90), "geo")
    assert found.startswith("client requests had moved before the injection: latency of GET /hotels, p95 ")


def test_requests_that_moved_shortly_before_the_injection_make_the_episode_void() -> None:
    assert "before the injection" in reason(requests(38, 90), "geo")


def test_a_no_fault_episode_in_which_requests_moved_before_its_onset_is_void() -> None:
    assert "before the injection" in reason(requests(20, 90))


def test_moved_requests_that_cannot_reach_the_target_make_the_episode_void() -> None:
    found = reason(requests(50, 90), "consul")
    assert found.startswith("client requests moved that cannot reach consul: latency of GET /hotels")
    assert "cannot reach geo" in reason(requests(50, 90, ("POST /user",)), "geo")


def test_an_endpoint_that_is_not_known_may_reach_all() -> None:
    frame = requests(50, 90)
    frame["endpoint"] = "GET /unknown"
    assert reason(frame, "geo") == ""


def test_what_happens_after_the_injection_does_not_count_as_before() -> None:
    assert moved_before(requests(45, 90), start_ns=START, onset_ns=ONSET) == []


def test_quiet_requests_rarely_count_as_moved() -> None:
    """Healthy windows with the heavy tail of real latencies; the limit of effects keeps the tests silent."""
    rng, fired = np.random.default_rng(7), 0
    for _ in range(12):
        frame = requests(0, 0)
        frame["latency_ns"] = pd.array((10e6 * rng.lognormal(0, 0.4, len(frame))).astype("int64"), dtype="Int64")
        fired += bool(moved_before(frame, start_ns=START, onset_ns=ONSET))
    assert fired == 0
