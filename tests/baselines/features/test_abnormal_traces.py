"""Changes in successions of events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from faultset.baselines.features.abnormal_traces import (
    Observations,
    compare_patterns,
    count_effective,
    g_statistic,
    select_first_surprises,
)


def test_the_likelihood_ratio_as_computed_by_hand() -> None:
    # 2 (6 ln(15/6) + 9 ln(15/9))
    assert g_statistic(np.array([0.0]), np.array([6.0]), np.array([9.0]), np.array([9.0]))[0] == pytest.approx(
        20.190, abs=1e-3
    )
    assert g_statistic(np.array([3.0]), np.array([6.0]), np.array([4.0]), np.array([8.0]))[0] == pytest.approx(0)


def test_similar_observations_count_for_no_more_than_twenty() -> None:
    assert count_effective(np.array([0.0, 1.0]), 0.05).tolist() == [0, 1]
    assert count_effective(np.array([1e6]), 0.05)[0] == pytest.approx(20, rel=1e-3)
    assert count_effective(np.array([50.0]), 0.0)[0] == 50


def observations(source: Sequence[int], target: Sequence[int]) -> Observations:
    size = len(source)
    times = np.arange(size)
    return Observations(
        source=np.array(source),
        target=np.array(target),
        blamed=np.zeros(size, dtype=int),
        pod=np.zeros(size, dtype=int),
        trace=times,
        began_ns=times,
        known_ns=times,
        certainty=np.ones(size),
    )


def test_a_change_counts_whichever_way_it_goes() -> None:
    healthy = np.arange(40) < 20
    for usually, now in ((0, 1), (1, 0)):
        result = compare_patterns(observations([7] * 40, [usually] * 20 + [now] * 20), healthy, [~healthy])
        # A pattern that became rare is reported by its replacement.
        assert result.g[now] > 20
        assert result.surprise[now] > 2
        assert result.surprise[usually] == 0


def test_a_change_that_comes_late_is_judged_by_the_late_part() -> None:
    seen = observations([7] * 60, [0] * 50 + [1] * 10)
    healthy, since, late = np.arange(60) < 20, np.arange(60) >= 20, np.arange(60) >= 50
    whole = compare_patterns(seen, healthy, [since]).g[1]
    assert compare_patterns(seen, healthy, [since, late]).g[1] > 2 * whole


def test_events_that_the_reference_hardly_has_are_not_judged() -> None:
    seen = observations([7] * 24, [0] * 4 + [1] * 20)
    assert compare_patterns(seen, np.arange(24) < 4, [np.arange(24) >= 4]).g.tolist() == [0, 0]


def test_a_small_surprise_does_not_explain_a_great_one() -> None:
    surprise, trace, time = np.array([1.0, 3.0, 2.9]), np.zeros(3, dtype=int), np.array([1, 2, 3])
    assert select_first_surprises(surprise, trace, time, 0.5).tolist() == [True, True, False]
