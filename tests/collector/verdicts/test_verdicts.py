"""SLI and latent tests on requests and frames with a known answer."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultset.collector.verdicts.latent import CAP, service_scores
from faultset.collector.verdicts.sli import ComparisonWindows, as_seen_at, first_manifest_ns, sli_tests
from faultset.collector.verdicts.verdict import UNCALIBRATED, judge

SECOND = 1_000_000_000
WINDOWS = ComparisonWindows(
    start_ns=0,
    reference_end_ns=80 * SECOND,
    onset_ns=100 * SECOND,
    end_ns=200 * SECOND,
)


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
    frame.loc[after_onset(frame, "search"), "latency_ns"] *= 3
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
    assert (unknown.verdict, unknown.latent_fires) == ("unknown", False)
    (row,) = [row for row in unknown.evidence if row["check"] == "latent"]
    assert row["detail"].endswith(UNCALIBRATED)
    assert row["statistic"] > 100
    assert judge(failing, moved, WINDOWS, targets=["geo"], limit=None).verdict == "manifest"
