"""Peaks of series by hand, and which of them count as alerts."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.features.windows import TimeWindow
from faultset.baselines.methods.rules.change_rules import AlertCount, RelativeChange, measure_peaks, slow_operations
from tests.baselines.conversations import SECOND, START, span, spoken
from tests.baselines.metric_series import World, healthy_series

NAN = np.nan


def test_peaks_are_the_furthest_samples_in_either_direction() -> None:
    reference = np.array([[10.0, 5.0, 1.0], [12.0, 5.0, NAN], [14.0, 5.0, NAN]])
    z, percent = measure_peaks(reference, np.array([[13.0, 9.0, 9.0], [2.0, 5.0, 9.0]]))
    assert z.tolist() == [5.0, 0.0, 0.0]
    assert percent == pytest.approx([100 * 10 / 12, 0.0, 0.0])


def test_the_largest_relative_change_beats_the_largest_deviation_and_the_count_of_alerts(world: World) -> None:
    series = healthy_series()
    late = np.arange(120) >= 70
    series["user", "faults"] = series["user", "faults"] + 2.0 * late
    for metric, rise in (("heap", 90.0), ("delay", 12.0)):
        series["mail", metric] = series["mail", metric] + rise * late
    view = world(series)
    alarm_ns = view.window[0] + 72 * SECOND
    ranking = RelativeChange().localize(view, alarm_ns)
    assert ranking.ordered[0] == "user"
    assert ranking.metrics["mail", "heap"] == pytest.approx(90, abs=5)
    counted = AlertCount().localize(view, alarm_ns)
    assert counted.ordered[0] == "mail"
    assert int(counted.scores["mail"]) >= 2


def test_an_operation_is_slow_from_three_times_its_healthy_percentile_on() -> None:
    rows = [span(second / 10, "cart", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "cart", "server", 29 if second % 2 else 31) for second in range(50)]
    rows += [span(second / 10, "db", "server", 10) for second in range(200)]
    rows += [span(28 + second / 10, "db", "server", 29) for second in range(50)]
    rows += [span(28 + second / 10, "front", "server", 500) for second in range(50)]
    time_window = TimeWindow(
        start_ns=START + 28 * SECOND,
        end_ns=START + 40 * SECOND,
        healthy_start_ns=START,
        healthy_end_ns=START + 24 * SECOND,
    )
    assert slow_operations(spoken(spans=rows), time_window) == {("cart", "cart.Get"): pytest.approx(3.1)}
