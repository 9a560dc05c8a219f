"""Limits of the latent test: how many windows they need, and that they hold on windows that they did not see."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from faultset.collector.cli.calibrate import calibrate
from faultset.collector.verdicts import latent
from faultset.collector.verdicts.exact_tests import compute_binomial_interval
from faultset.collector.verdicts.latent import Calibration, Window
from faultset.core.errors import DataError
from faultset.datasets import open_dataset
from faultset.datasets.format.labels import read_evidence

SAMPLE = Path(__file__).parents[3] / "datasets" / "sample"


def windows(episodes: int, services: int, rng: np.random.Generator) -> tuple[Window, ...]:
    return tuple(
        Window(episode=f"e{number}", service=f"s{service}", series="cpu", score=float(rng.lognormal(1.0, 0.5)))
        for number in range(episodes)
        for service in range(services)
    )


def of(found: tuple[Window, ...], app: str = "shop", step_s: float = 1.0) -> Calibration:
    return Calibration(app=app, platform="local", step_s=step_s, windows=found)


def test_fewer_than_300_windows_give_no_limit() -> None:
    rng = np.random.default_rng(0)
    assert of(windows(1, 299, rng)).threshold is None
    assert of(windows(1, 300, rng)).threshold is not None


def test_the_limit_is_the_order_statistic_that_one_more_window_exceeds_once_in_a_hundred() -> None:
    found = tuple(Window(episode="e", service=f"s{i}", series="cpu", score=float(i)) for i in range(1, 400))
    # 0.99 of 400 places: the 396th smallest of 399, above which 4 of 400 places lie
    assert of(found).threshold == 396.0


def test_the_limit_holds_its_rate_on_windows_that_it_was_not_drawn_from() -> None:
    rng = np.random.default_rng(1)
    limits = [of(windows(20, 18, rng)).threshold for _ in range(200)]
    fresh = rng.lognormal(1.0, 0.5, (200, 360))
    exceeding = sum(int((scores > limit).sum()) for scores, limit in zip(fresh, limits, strict=True))
    # of 360 windows the limit is the third largest: 3 of 361 places lie above it, at most 1 %
    assert exceeding / fresh.size == pytest.approx(3 / 361, abs=0.001)


def test_each_episode_is_judged_by_the_limit_of_the_others() -> None:
    rng = np.random.default_rng(2)
    calm = windows(20, 18, rng)
    wild = tuple(Window(episode="wild", service=f"s{i}", series="cpu", score=1000.0 + i) for i in range(10))
    exceeding, judged = of((*calm, *wild)).false_alarms
    assert judged == 370
    assert exceeding >= 10
    low, high = compute_binomial_interval(*of(calm).false_alarms)
    assert low <= 0.01 <= high


def test_a_limit_is_for_one_application_platform_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(windows(20, 18, np.random.default_rng(3)))
    monkeypatch.setattr(latent, "load_calibrations", lambda: (found,))
    assert latent.threshold_for("shop", "local", 1.0) == found.threshold
    assert latent.threshold_for("hotel", "local", 1.0) is None
    assert latent.threshold_for("shop", "kubernetes", 1.0) is None
    assert latent.threshold_for("shop", "local", 2.0) is None


def test_what_comes_with_the_release_is_what_was_measured() -> None:
    for one in latent.load_calibrations():
        assert one.threshold == latent.compute_limit([window.score for window in one.windows])
        assert (one.threshold is None) == (len(one.windows) < 300)


def test_the_command_measures_plain_episodes_and_writes_a_file_that_is_read_again(tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    result = CliRunner().invoke(calibrate, [str(SAMPLE), str(SAMPLE), "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (hotel,) = [one for one in latent.from_json(out.read_text(), str(out)) if one.app == "hotel"]
    assert hotel.episodes == 1  # given twice, counted once; sham and disturbed episodes are left out
    assert f"{len(hotel.windows)} service windows in 1 episode" in result.output
    assert "no limit: 300 windows are needed" in result.output


def test_the_command_prints_json_of_what_it_measured() -> None:
    result = CliRunner().invoke(calibrate, [str(SAMPLE), "--json"], catch_exceptions=False)
    (hotel,) = [row for row in json.loads(result.output) if row["app"] == "hotel"]
    assert (hotel["episodes"], hotel["limit"], hotel["least_windows"]) == (1, None, 300)
    assert hotel["windows"] > 0
    assert hotel["share_above_interval"] is None


def test_services_that_were_rolled_out_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    (all_services,) = [one for one in latent.measure_calibrations([open_dataset(SAMPLE)]) if one.app == "hotel"]

    def evidence_with_rollout(folder: Path) -> pd.DataFrame:
        row = {"check": "rollout", "subject": "geo", "passed": True, "detail": "faultset/app:1.0.1"}
        return pd.concat([read_evidence(folder), pd.DataFrame([row])], ignore_index=True)

    monkeypatch.setattr(latent, "read_evidence", evidence_with_rollout)
    (others,) = [one for one in latent.measure_calibrations([open_dataset(SAMPLE)]) if one.app == "hotel"]
    counted = [{window.service for window in one.windows} for one in (all_services, others)]
    assert counted[0] - counted[1] == {"geo"}


@pytest.mark.parametrize("text", ["[]", "{}", '{"version": 2, "calibrations": [{"app": 1}]}'])
def test_a_file_that_is_no_calibration_is_one_sentence(text: str) -> None:
    with pytest.raises(DataError):
        latent.from_json(text, "calibration.json")


@pytest.mark.parametrize(
    ("metric", "is_gone"),
    [("container_cpu_usage_seconds_total", True), ("http_server_request_duration_seconds_mean", False)],
)
def test_a_container_whose_irregular_readings_end_is_gone_but_not_a_rarely_called_operation(
    metric: str, is_gone: bool
) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(1.0, 0.01, 90)
    values[5:36:6] = np.nan
    values[60:] = np.nan
    frame = pd.DataFrame({("geo", metric): values}, index=pd.to_datetime(np.arange(90) * 10**9, utc=True))
    (score,) = latent.service_scores(frame, reference_end_ns=36 * 10**9, onset_ns=40 * 10**9)
    assert (score.score == latent.CAP) == is_gone


def test_a_rare_tick_between_missing_readings_is_no_lasting_change() -> None:
    values = np.zeros(90)
    values[5:90:7] = np.nan
    values[[60, 62]], values[61] = np.nan, 0.01
    frame = pd.DataFrame(
        {("mongodb", "container_cpu_system_seconds_total"): values},
        index=pd.to_datetime(np.arange(90) * 10**9, utc=True),
    )
    (score,) = latent.service_scores(frame, reference_end_ns=36 * 10**9, onset_ns=40 * 10**9)
    assert score.score == 0.0


def test_a_frame_without_columns_has_no_scores() -> None:
    columns = pd.MultiIndex.from_arrays([[], []], names=["service", "metric"])
    frame = pd.DataFrame(index=pd.to_datetime(np.arange(90) * 10**9, utc=True), columns=columns)
    assert latent.service_scores(frame, reference_end_ns=36 * 10**9, onset_ns=40 * 10**9) == []
