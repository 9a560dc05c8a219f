"""BARO's change point: its position, and independence of later data."""

from __future__ import annotations

from typing import Any

import numpy as np

from faultset.baselines.api import registry
from faultset.baselines.api.contract import Detection
from tests.baselines.metric_series import SECOND, World, healthy_series


def test_baro_finds_its_own_change_point_where_errors_and_delays_jump(world: World) -> None:
    series = healthy_series()
    for service in ("db", "cart", "user", "front"):
        series[service, "faults"] = series[service, "faults"] + np.where(np.arange(120) >= 70, 3.0, 0.0)
        series[service, "delay"] = series[service, "delay"] + np.where(np.arange(120) >= 70, 30.0, 0.0)
    series["db", "heap"] = series["db", "heap"] - np.where(np.arange(120) >= 70, 90.0, 0.0)
    view = world(series)
    detector: Any = registry.get_baseline("baro-change-point").build()
    detection: Detection = detector.detect(view)
    assert detection.alarm_ns is not None
    assert 70 * SECOND < detection.alarm_ns - view.window[0] <= 74 * SECOND
    since_s = (detection.alarm_ns - view.window[0]) / SECOND - 70
    assert {item.detail for item in detection.evidence} == {f"new regime since {since_s:g} s"}


def test_the_scale_of_the_future_does_not_move_the_change_point(world: World) -> None:
    detector: Any = registry.get_baseline("baro-change-point").build()
    series = healthy_series(1)
    before = detector.detect(world(series))
    for key in series:
        series[key] = np.where(np.arange(120) >= 100, 1e6, series[key])
    after = detector.detect(world(series))
    expected = int((before.times_ns <= world(series).window[0] + 100 * SECOND).sum())
    np.testing.assert_allclose(before.scores[:expected], after.scores[:expected])
    assert after.alarm_ns is not None
