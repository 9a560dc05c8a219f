"""Correlation with the metric of the alarm: p-values by hand, and which metrics are compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr

from faultset.baselines.methods.localization.combined_evidence import CombinedEvidence, CombinedEvidenceAtAlarm
from faultset.baselines.methods.localization.correlation import RankedCorrelation, correlation_p_values
from faultset.datasets.format.labels import AlarmLocation
from faultset.datasets.views import EpisodeView
from tests.baselines.metric_series import SECOND, World, healthy_series


def test_p_values_are_those_of_pearsons_test_and_ignore_gaps() -> None:
    rng = np.random.default_rng(0)
    series, target = rng.normal(size=(9, 3)), rng.normal(size=9)
    expected = [pearsonr(column, target)[1] for column in series.T]
    assert correlation_p_values(series, target) == pytest.approx(expected)
    with_gap = np.vstack([series, np.full((1, 3), np.nan)])
    assert correlation_p_values(with_gap, np.append(target, 7.0)) == pytest.approx(expected)


def test_an_undefined_correlation_is_no_evidence() -> None:
    assert correlation_p_values(np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([1.0, 2.0])).tolist() == [1.0, 1.0]


def test_the_service_that_moves_with_the_alarms_metric_comes_first_and_the_alarms_service_is_not_ranked(
    world: World,
) -> None:
    series = healthy_series()
    ramp = np.clip(np.arange(120) - 70.0, 0, None)
    series["front", "delay"] = series["front", "delay"] + ramp
    series["db", "delay"] = series["db", "delay"] + ramp
    series["mail", "delay"] = series["mail", "delay"] + 20 * np.abs(np.sin(np.arange(120))) * (ramp > 0)
    ranking = RankedCorrelation().localize(world(series), world(series).window[0] + 72 * SECOND)
    assert ranking.ordered[0] == "db"
    assert "front" not in ranking.scores
    assert ("db", "delay") in ranking.metrics


def test_the_named_metric_of_the_alarm_is_followed_instead_of_the_front_ends(world: World) -> None:
    series = healthy_series()
    ramp = np.clip(np.arange(120) - 70.0, 0, None)
    for service, factor in (("front", 9.0), ("db", 9.0)):
        series[service, "delay"] = series[service, "delay"] + factor * ramp
    wave = 5.0 * (1 + np.sin(np.arange(120))) * (ramp > 0)
    for service in ("cart", "user"):
        series[service, "faults"] = series[service, "faults"] + wave
    view = world(series)
    alarm_ns = view.window[0] + 72 * SECOND
    assert RankedCorrelation().localize(view, alarm_ns).ordered[0] == "db"
    placed = set_alarm_location(view, AlarmLocation(service="cart", metric="fau*"))
    assert RankedCorrelation().localize(placed, alarm_ns).ordered == ("user",)


def set_alarm_location(view: EpisodeView, location: AlarmLocation) -> EpisodeView:
    return EpisodeView(view._folder, alarm_location=location)


def test_combined_evidence_follows_the_alarm_where_there_are_no_spans(world: World) -> None:
    series = healthy_series()
    ramp = np.clip(np.arange(120) - 70.0, 0, None)
    for service in ("front", "db"):
        series[service, "delay"] = series[service, "delay"] + 9.0 * ramp
    wave = 5.0 * (1 + np.sin(np.arange(120))) * (ramp > 0)
    for service in ("cart", "user"):
        series[service, "faults"] = series[service, "faults"] + wave
    view = world(series)
    alarm_ns = view.window[0] + 72 * SECOND
    assert CombinedEvidence().localize(view, alarm_ns).ordered[0] == "db"
    assert CombinedEvidenceAtAlarm().localize(view, alarm_ns).ordered[0] == "db"
    placed = set_alarm_location(view, AlarmLocation(service="cart", metric="fau*"))
    assert CombinedEvidenceAtAlarm().localize(placed, alarm_ns).ordered[0] == "user"
    assert CombinedEvidence().localize(placed, alarm_ns).ordered[0] == "db"
