"""PRISM on series whose deviations are computed by hand, and on a fault inside one service."""

from __future__ import annotations

import numpy as np
import pytest

from faultset.baselines.methods.localization.prism import PRISM, combine_properties
from tests.baselines.metric_series import SECOND, World, healthy_series


def test_the_additive_score_grows_with_the_sum_of_both_deviations() -> None:
    scores = combine_properties(np.array([3.0, 0.0, 6.0]), np.array([4.0, 6.9, 0.0]))
    assert scores == pytest.approx([7 - np.log(8), 6.9 - np.log(7.9), 6 - np.log(7)])


def test_scores_of_an_episode_are_those_by_hand(world: World) -> None:
    # Every series is 4, 6, 4, ... so its mean is 5 and its spread 1. One peak is 12 and another 8.
    series = {name: np.where(np.arange(120) % 2, 6.0, 4.0) for name in healthy_series()}
    series["user", "delay"][75] += 6.0
    series["user", "work"][75] += 2.0
    view = world(series)
    scores = PRISM().localize(view, view.window[0] + 72 * SECOND).scores
    assert scores["user"] == pytest.approx(7 + 3 - np.log(1 + 7 + 3), rel=0.02)
    assert scores["db"] == pytest.approx(1 + 1 - np.log(1 + 1 + 1), rel=0.02)


def test_a_service_that_only_shows_symptoms_ranks_behind_one_that_deviates_inside_as_well(world: World) -> None:
    series = healthy_series()
    late = np.arange(120) >= 70
    series["front", "delay"] = series["front", "delay"] + 25.0 * late
    series["user", "delay"] = series["user", "delay"] + 6.0 * late
    series["user", "work"] = series["user", "work"] + 2.0 * late
    view = world(series)
    ranking = PRISM().localize(view, view.window[0] + 72 * SECOND)
    assert ranking.ordered[0] == "user"
    assert ranking.metrics["front", "delay"] > ranking.metrics["user", "delay"]
    assert PRISM(combination="conjunctive").localize(view, view.window[0] + 72 * SECOND).ordered[0] == "user"


def test_a_mean_over_time_ignores_a_single_spike(world: World) -> None:
    series = healthy_series()
    late = np.arange(120) >= 70
    series["user", "work"] = series["user", "work"] + 3.0 * late
    series["mail", "work"] = series["mail", "work"] + 30.0 * (np.arange(120) == 80)
    view = world(series)
    alarm_ns = view.window[0] + 72 * SECOND
    assert PRISM(pooling_of_time="max").localize(view, alarm_ns).ordered[0] == "mail"
    assert PRISM(pooling_of_time="mean").localize(view, alarm_ns).ordered[0] == "user"
