"""An episode whose client requests moved by what its fault cannot have caused is void."""

from __future__ import annotations

import numpy as np
import pandas as pd

from faultset.collector.verdicts.client_impact import ClientImpact, client_impact, sli_evidence
from faultset.collector.verdicts.sli import ComparisonWindows
from faultset.collector.verdicts.steadiness import earlier_changes
from faultset.collector.verdicts.validity import void_reason

SECOND = 1_000_000_000
START, ONSET = 0, 45 * SECOND
WINDOWS = ComparisonWindows(start_ns=START, reference_end_ns=36 * SECOND, onset_ns=ONSET, end_ns=90 * SECOND)
REACHED = {"GET /hotels": frozenset({"frontend", "search", "geo"}), "POST /user": frozenset({"frontend", "user"})}


def requests(
    slow_from_s: float, slow_to_s: float, endpoints: tuple[str, ...] = tuple(REACHED), more_ms: float = 150
) -> pd.DataFrame:
    """Twenty requests a second for 90 s that take 10 ms; those of some endpoints take longer for a while."""
    rng = np.random.default_rng(1)
    scheduled = np.arange(START, WINDOWS.end_ns, SECOND // 20)
    endpoint = np.array(list(REACHED))[rng.integers(0, 2, len(scheduled))]
    latency = rng.normal(10e6, 1e6, len(scheduled))
    slow = (scheduled >= slow_from_s * SECOND) & (scheduled < slow_to_s * SECOND) & np.isin(endpoint, endpoints)
    latency = np.where(slow, latency + more_ms * 1e6, latency)
    return pd.DataFrame(
        {
            "scheduled": scheduled,
            "endpoint": endpoint,
            "outcome": "ok",
            "status": 200,
            "latency_ns": pd.array(latency.astype("int64"), dtype="Int64"),
        }
    )


def slowed_requests(frame: pd.DataFrame, slow_from_s: float, more_ms: float) -> pd.DataFrame:
    """The same requests, all of which take still longer from a time on."""
    late = frame["scheduled"] >= slow_from_s * SECOND
    return frame.assign(latency_ns=frame["latency_ns"] + late.astype("int64") * int(more_ms * 1e6))


def impact_of(frame: pd.DataFrame) -> ClientImpact:
    return client_impact(frame, None, WINDOWS)


def reason(frame: pd.DataFrame, *faulty: str) -> str:
    return void_reason(impact_of(frame), faulty=faulty, services_reached=REACHED)


def test_a_quiet_episode_is_valid() -> None:
    assert reason(requests(0, 0), "geo") == ""
    assert reason(requests(0, 0)) == ""


def test_requests_that_move_after_the_injection_are_valid_when_they_can_reach_the_target() -> None:
    assert reason(requests(50, 90), "geo") == ""
    assert reason(requests(50, 90, ("POST /user",)), "user") == ""


def test_requests_that_moved_25_s_before_the_injection_make_the_episode_void() -> None:
    found = reason(requests(20, 90), "geo")
    assert found.startswith("client requests had moved before the injection: latency of GET /hotels, p95 ")


def test_requests_that_failed_before_the_injection_make_the_episode_void() -> None:
    frame = requests(0, 0)
    failed = frame["scheduled"].between(30 * SECOND, 45 * SECOND) & (np.arange(len(frame)) % 5 == 0)
    assert reason(frame.assign(outcome=np.where(failed, "timeout", "ok")), "geo").startswith(
        "client requests had moved before the injection: error-rate of "
    )


def test_latencies_that_moved_a_little_before_count_only_when_they_move_twice_as_much_after() -> None:
    """The host took 40 ms more from 38 s on; a fault that adds 20 ms is not told from it, one that adds 60 ms is."""
    unsteady = requests(38, 90, more_ms=40)
    for more_ms, is_manifest in ((20, False), (60, True)):
        frame = slowed_requests(unsteady, 45, more_ms)
        assert impact_of(frame).is_manifest == is_manifest
        found = reason(frame, "geo")
        assert found == "" if is_manifest else "before the injection, and hardly more after it" in found


def test_failures_count_however_little_latencies_had_moved_before() -> None:
    unsteady = requests(38, 90, more_ms=40)
    failing = unsteady["scheduled"] >= 60 * SECOND
    impact = impact_of(unsteady.assign(outcome=np.where(failing, "http_error", "ok")))
    assert impact.is_manifest
    assert {test.test for test in impact.tests if test.fires} == {"error-rate"}
    assert impact.first_manifest_ns is not None
    assert impact.first_manifest_ns > 60 * SECOND


def test_a_no_fault_episode_on_an_unsteady_host_is_valid_and_silent() -> None:
    unsteady = requests(38, 90, more_ms=40)
    assert not impact_of(unsteady).is_manifest
    assert reason(unsteady) == ""


def test_what_moved_before_is_part_of_the_evidence() -> None:
    rows = sli_evidence(impact_of(requests(20, 90, more_ms=40)))
    assert {row["subject"] for row in rows if row["check"] == "sli-before"} == {
        "GET /hotels latency",
        "POST /user latency",
    }
    assert not any(row["check"] == "sli-before" for row in sli_evidence(impact_of(requests(0, 0))))


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
    assert earlier_changes(requests(45, 90), start_ns=START, onset_ns=ONSET) == []


def test_quiet_requests_rarely_count_as_moved() -> None:
    """Healthy windows with the heavy tail of real latencies; the limit of effects keeps the tests silent."""
    rng, fired = np.random.default_rng(7), 0
    for _ in range(12):
        frame = requests(0, 0)
        frame["latency_ns"] = pd.array((10e6 * rng.lognormal(0, 0.4, len(frame))).astype("int64"), dtype="Int64")
        fired += bool(earlier_changes(frame, start_ns=START, onset_ns=ONSET))
    assert fired == 0
