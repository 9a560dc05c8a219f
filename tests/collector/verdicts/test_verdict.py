"""SLI and latent tests on requests and frames with a known answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultset.collector.verdicts.client_requests import (
    ClientImpact,
    ComparisonWindows,
    as_seen_at,
    client_impact,
    earlier_changes,
    first_manifest_ns,
    sli_evidence,
    sli_tests,
)
from faultset.collector.verdicts.latent import CAP, service_scores
from faultset.collector.verdicts.verdict import UNCALIBRATED, judge, void_reason

SECOND = 1_000_000_000
WINDOWS = ComparisonWindows(start_ns=0, reference_end_ns=80 * SECOND, onset_ns=100 * SECOND, end_ns=200 * SECOND)


def requests(seed: int = 0, rate: float = 10.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    n = int(rate * 200)
    return pd.DataFrame(
        {
            "scheduled": np.sort(rng.integers(0, 200 * SECOND, n)),
            "endpoint": rng.choice(["search", "login"], n),
            "latency_ns": pd.array(rng.lognormal(16.5, 0.3, n).astype("int64"), dtype="Int64"),
            "status": pd.array([200] * n, dtype="Int32"),
            "outcome": "ok",
        }
    )


def after_onset(frame: pd.DataFrame, endpoint: str) -> np.ndarray:
    return ((frame["scheduled"] >= 100 * SECOND) & (frame["endpoint"] == endpoint)).to_numpy()


def firing(frame: pd.DataFrame) -> set[tuple[str, str]]:
    return {(t.endpoint, t.test) for t in sli_tests(frame, WINDOWS) if t.fires}


def test_nothing_fires_on_unchanged_requests() -> None:
    assert all(firing(requests(seed)) == set() for seed in range(20))


def test_failing_requests_of_one_endpoint_fire_for_that_endpoint_only() -> None:
    frame = requests()
    frame.loc[after_onset(frame, "login"), "outcome"] = "http_error"
    assert firing(frame) == {("login", "error-rate")}


def test_slower_requests_fire_only_beyond_the_limit_of_effect() -> None:
    frame = requests()
    frame.loc[after_onset(frame, "search"), "latency_ns"] *= 4
    assert firing(frame) == {("search", "latency")}
    frame = requests()
    frame["latency_ns"] = (frame["latency_ns"] * np.where(after_onset(frame, "search"), 1.2, 1.0)).astype("Int64")
    assert firing(frame) == set()


def test_requests_that_hang_count_as_failed_and_as_not_completed() -> None:
    frame = requests()
    hanging = after_onset(frame, "search")
    frame.loc[hanging, "outcome"] = "unfinished"
    frame.loc[hanging, "latency_ns"] = pd.NA
    assert ("search", "completion") in firing(frame)
    assert ("search", "error-rate") in firing(frame)


def test_the_first_manifest_second_follows_the_first_failures_closely() -> None:
    frame = requests()
    frame.loc[after_onset(frame, "search"), "outcome"] = "http_error"
    first = first_manifest_ns(frame, WINDOWS)
    assert first is not None
    assert 100 * SECOND < first <= 104 * SECOND
    assert first_manifest_ns(requests(), WINDOWS) is None


def test_answers_after_the_end_of_the_view_are_not_known_in_it() -> None:
    frame = pd.DataFrame(
        {
            "scheduled": [0, 9 * SECOND, 11 * SECOND],
            "endpoint": "search",
            "latency_ns": pd.array([SECOND, 2 * SECOND, SECOND], dtype="Int64"),
            "status": pd.array([200, 500, 200], dtype="Int32"),
            "outcome": ["ok", "http_error", "ok"],
        }
    )
    seen = as_seen_at(frame, 10 * SECOND)
    assert seen["outcome"].tolist() == ["ok", "unfinished"]
    assert seen["latency_ns"].isna().tolist() == [False, True]


def wide(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    index = pd.DatetimeIndex(pd.to_datetime(np.arange(200) * SECOND, utc=True), name="time")
    columns = pd.MultiIndex.from_product([["geo", "rate"], ["cpu", "memory"]], names=["service", "metric"])
    return pd.DataFrame(rng.normal(10, 1, (200, 4)), index=index, columns=columns)


def scores(frame: pd.DataFrame) -> dict[str, float]:
    found = service_scores(frame, reference_end_ns=80 * SECOND, onset_ns=100 * SECOND)
    return {score.service: score.score for score in found}


@pytest.mark.parametrize("direction", [1, -1])
def test_a_shift_kept_for_three_samples_scores_in_either_direction(direction: int) -> None:
    frame = wide()
    frame.iloc[150:153, 0] += direction * 50
    found = scores(frame)
    assert found["geo"] > 20 > found["rate"]


def test_two_samples_are_a_blip() -> None:
    frame = wide()
    frame.iloc[150:152, 0] += 50
    assert scores(frame)["geo"] < 6


def test_a_series_that_ends_scores_most() -> None:
    frame = wide()
    frame.iloc[150:, 2] = np.nan
    assert scores(frame)["rate"] == CAP


def test_the_verdict_is_manifest_before_latent_before_silent() -> None:
    failing, moved = requests(), wide()
    failing.loc[after_onset(failing, "search"), "outcome"] = "http_error"
    moved.iloc[120:, 0] += 1000
    assert judge(failing, wide(), WINDOWS, targets=["geo"], limit=10.0).verdict == "manifest"
    assert judge(requests(), moved, WINDOWS, targets=["geo"], limit=10.0).verdict == "latent"
    assert judge(requests(), moved, WINDOWS, targets=["rate"], limit=10.0).verdict == "silent"


def test_a_series_that_has_gaps_anyway_does_not_end() -> None:
    frame = wide()
    frame.iloc[::4, 2] = np.nan
    frame.iloc[150:156, 2] = np.nan
    assert scores(frame)["rate"] < 6


def test_without_a_calibration_the_latent_test_says_nothing() -> None:
    failing, moved = requests(), wide()
    failing.loc[after_onset(failing, "search"), "outcome"] = "http_error"
    moved.iloc[120:, 0] += 1000
    unknown = judge(requests(), moved, WINDOWS, targets=["geo"], limit=None)
    assert unknown.verdict == "unknown"
    (row,) = [row for row in unknown.evidence if row["check"] == "latent"]
    assert row["detail"].endswith(UNCALIBRATED)
    assert row["statistic"] > 100
    assert judge(failing, moved, WINDOWS, targets=["geo"], limit=None).verdict == "manifest"


START, ONSET = 0, 45 * SECOND
VOID_WINDOWS = ComparisonWindows(start_ns=START, reference_end_ns=36 * SECOND, onset_ns=ONSET, end_ns=90 * SECOND)
REACHED = {"GET /hotels": frozenset({"frontend", "search", "geo"}), "POST /user": frozenset({"frontend", "user"})}


def void_requests(
    slow_from_s: float, slow_to_s: float, endpoints: tuple[str, ...] = tuple(REACHED), more_ms: float = 150
) -> pd.DataFrame:
    """Twenty requests a second for 90 s that take 10 ms; those of some endpoints take longer for a while."""
    rng = np.random.default_rng(1)
    scheduled = np.arange(START, VOID_WINDOWS.end_ns, SECOND // 20)
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
    return client_impact(frame, None, VOID_WINDOWS)


def reason(frame: pd.DataFrame, *faulty: str) -> str:
    return void_reason(impact_of(frame), faulty=faulty, services_reached=REACHED)


def test_a_quiet_episode_is_valid() -> None:
    assert reason(void_requests(0, 0), "geo") == ""
    assert reason(void_requests(0, 0)) == ""


def test_requests_that_move_after_the_injection_are_valid_when_they_can_reach_the_target() -> None:
    assert reason(void_requests(50, 90), "geo") == ""
    assert reason(void_requests(50, 90, ("POST /user",)), "user") == ""


def test_requests_that_moved_25_s_before_the_injection_make_the_episode_void() -> None:
    found = reason(void_requests(20, 90), "geo")
    assert found.startswith("client requests had changed before the injection: latency of GET /hotels, p95 ")


def test_requests_that_failed_before_the_injection_make_the_episode_void() -> None:
    frame = void_requests(0, 0)
    failed = frame["scheduled"].between(30 * SECOND, 45 * SECOND) & (np.arange(len(frame)) % 5 == 0)
    assert reason(frame.assign(outcome=np.where(failed, "timeout", "ok")), "geo").startswith(
        "client requests had changed before the injection: error-rate of "
    )


def test_latencies_that_moved_a_little_before_count_only_when_they_move_twice_as_much_after() -> None:
    """The host took 40 ms more from 38 s on; a fault that adds 20 ms is not told from it, one that adds 60 ms is."""
    unsteady = void_requests(38, 90, more_ms=40)
    for more_ms, is_manifest in ((20, False), (60, True)):
        frame = slowed_requests(unsteady, 45, more_ms)
        assert impact_of(frame).is_manifest == is_manifest
        found = reason(frame, "geo")
        assert found == "" if is_manifest else "before the injection, and changed little after it" in found


def test_failures_count_however_little_latencies_had_moved_before() -> None:
    unsteady = void_requests(38, 90, more_ms=40)
    failing = unsteady["scheduled"] >= 60 * SECOND
    impact = impact_of(unsteady.assign(outcome=np.where(failing, "http_error", "ok")))
    assert impact.is_manifest
    assert {test.test for test in impact.tests if test.fires} == {"error-rate"}
    assert impact.first_manifest_ns is not None
    assert impact.first_manifest_ns > 60 * SECOND


def test_a_no_fault_episode_on_an_unsteady_host_is_valid_and_silent() -> None:
    unsteady = void_requests(38, 90, more_ms=40)
    assert not impact_of(unsteady).is_manifest
    assert reason(unsteady) == ""


def test_what_moved_before_is_part_of_the_evidence() -> None:
    rows = sli_evidence(impact_of(void_requests(20, 90, more_ms=40)))
    assert {row["subject"] for row in rows if row["check"] == "sli-before"} == {
        "GET /hotels latency",
        "POST /user latency",
    }
    assert not any(row["check"] == "sli-before" for row in sli_evidence(impact_of(void_requests(0, 0))))


def test_requests_that_moved_shortly_before_the_injection_make_the_episode_void() -> None:
    assert "before the injection" in reason(void_requests(38, 90), "geo")


def test_a_no_fault_episode_in_which_requests_moved_before_its_onset_is_void() -> None:
    assert "before the injection" in reason(void_requests(20, 90))


def test_moved_requests_that_cannot_reach_the_target_make_the_episode_void() -> None:
    found = reason(void_requests(50, 90), "consul")
    assert found.startswith("client requests changed, but none of them can reach consul: latency of GET /hotels")
    assert "none of them can reach geo" in reason(void_requests(50, 90, ("POST /user",)), "geo")


def test_an_endpoint_that_is_not_known_may_reach_all() -> None:
    frame = void_requests(50, 90)
    frame["endpoint"] = "GET /unknown"
    assert reason(frame, "geo") == ""


def test_what_happens_after_the_injection_does_not_count_as_before() -> None:
    assert earlier_changes(void_requests(45, 90), start_ns=START, onset_ns=ONSET) == []


def test_quiet_requests_rarely_count_as_moved() -> None:
    """Healthy windows with the heavy tail of real latencies; the limit of effects keeps the tests silent."""
    rng, fired = np.random.default_rng(7), 0
    for _ in range(12):
        frame = void_requests(0, 0)
        frame["latency_ns"] = pd.array((10e6 * rng.lognormal(0, 0.4, len(frame))).astype("int64"), dtype="Int64")
        fired += bool(earlier_changes(frame, start_ns=START, onset_ns=ONSET))
    assert fired == 0
