"""Detection scores against vectors computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.evaluators.scoring.alarms import (
    alarms,
    event_scores,
    events,
    summarise_times,
    time_to_detect,
    timed_alarms,
)
from faultset.evaluators.scoring.confusion import Confusion
from faultset.evaluators.scoring.points import (
    average_precision,
    front,
    point_scores,
    range_score,
    vus_pr,
)

TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0])
FLAGS = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0])
SCORES = np.array([0.10, 0.20, 0.05, 0.30, 0.90, 0.80, 0.40, 0.70, 0.15, 0.60, 0.01, 0.00])


def test_events_are_half_open_runs():
    assert events(TRUTH) == [(3, 7)]
    assert events(FLAGS) == [(5, 6), (9, 11)]
    assert events([]) == []
    assert events([1, 1]) == [(0, 2)]


def test_an_event_at_the_start_of_a_series_is_found_like_any_other():
    assert time_to_detect(0, 2, alarms([0, 1, 0, 0, 0])) == 1
    assert event_scores([(0, 2)], alarms([0, 1, 0, 0, 0])) == (1.0, 1.0)
    assert event_scores([(0, 2)], alarms([1, 0, 0, 0, 0])) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("table", "balanced", "mcc"),
    [
        (Confusion(tp=13, fp=2, fn=0, tn=0), 0.5, 0.0),
        (Confusion(tp=9, fp=0, fn=4, tn=2), 0.846, 0.480),
        (Confusion(tp=10, fp=2, fn=3, tn=0), 0.385, -0.196),
    ],
)
def test_confusion_of_published_answers(table: Confusion, balanced: float, mcc: float):
    assert round(table.balanced_accuracy, 3) == balanced
    assert round(table.mcc, 3) == mcc


def test_always_yes_has_high_accuracy_and_half_balanced_accuracy():
    always_yes = Confusion.of([(True, True)] * 31 + [(False, True)] * 3)
    assert round(always_yes.accuracy, 3) == 0.912
    assert always_yes.balanced_accuracy == 0.5
    assert always_yes.false_positive_rate == 1.0


def test_confusion_without_healthy_episodes_is_unscored_not_zero():
    table = Confusion.of([(True, True), (True, False)])
    assert table.recall == 0.5
    assert math.isnan(table.specificity)
    assert math.isnan(table.balanced_accuracy)
    assert math.isnan(Confusion.of([]).mcc)


def test_point_scores_count_samples():
    precision, recall, f1 = point_scores(TRUTH, FLAGS)
    assert (precision, recall) == (1 / 3, 1 / 4)
    assert round(f1, 4) == 0.2857
    assert all(math.isnan(value) for value in point_scores([0, 0], [0, 0]))


def test_range_scores_agree_with_tatbul():
    assert range_score(events(FLAGS), events(TRUTH)) == 0.5
    assert range_score(events(TRUTH), events(FLAGS)) == 0.25
    assert math.isclose(range_score(events(TRUTH), events(FLAGS), alpha=0.2), 0.4)
    assert math.isclose(range_score(events(TRUTH), events(FLAGS), alpha=0.5, weight=front), 0.6)
    assert math.isnan(range_score([], events(FLAGS)))


@pytest.mark.parametrize(
    ("flags", "gap", "grace", "expected"),
    [
        (FLAGS, 0, 0, (0.5, 1.0)),
        (FLAGS, 3, 0, (1.0, 1.0)),
        (np.ones(12), 0, 0, (0.0, 0.0)),
        (FLAGS, 0, 3, (1.0, 1.0)),
    ],
    ids=["plain", "gap joins two alarms", "always on began before the event", "grace after the event"],
)
def test_event_scores_count_the_onsets_of_alarms(flags, gap, grace, expected):
    assert event_scores(events(TRUTH), alarms(flags, gap), grace) == expected


def test_event_scores_without_alarms_or_events_are_unscored():
    precision, recall = event_scores([(3, 7)], [])
    assert math.isnan(precision)
    assert recall == 0.0
    assert math.isnan(event_scores([], [(1, 2)])[1])


def test_time_to_detect_censors_misses():
    times = [30.0, 45.0, 60.0, math.inf, 120.0]
    summary = summarise_times(times, [300.0] * 5)
    assert summary.rate_at[60.0] == 0.6
    assert summary.median == 60.0
    assert summary.restricted_mean == 111.0
    assert np.mean([time for time in times if time < math.inf]) == 63.75  # what leaving misses out would say
    assert (summary.found, summary.n) == (4, 5)


def test_time_to_detect_of_the_running_example():
    assert time_to_detect(3, 7, alarms(FLAGS)) == 2


def test_an_alarm_that_is_on_at_the_onset_is_not_a_detection_after_zero_seconds():
    assert time_to_detect(3, 7, alarms([0, 1, 1, 1, 1, 1, 1, 0])) == math.inf
    assert time_to_detect(3, 7, alarms([0, 1, 0, 1, 1, 1, 1, 0])) == 0.0


def test_half_of_all_missed_gives_an_infinite_median():
    assert summarise_times([10.0, math.inf], [60.0, 60.0]).median == math.inf
    assert math.isnan(summarise_times([], []).median)


def test_timed_alarms_join_across_the_gap_in_nanoseconds():
    times = np.arange(6) * 10 + 100
    assert timed_alarms(times, [0, 1, 0, 1, 0, 1], gap_ns=0) == [(110, 120), (130, 140), (150, 160)]
    assert timed_alarms(times, [0, 1, 0, 1, 0, 1], gap_ns=10) == [(110, 160)]
    assert timed_alarms([], [], gap_ns=0) == []


def test_average_precision_by_hand():
    assert math.isclose(average_precision(TRUTH, SCORES), (1 / 1 + 2 / 2 + 3 / 5 + 4 / 6) / 4)
    assert round(average_precision(TRUTH, SCORES), 4) == 0.8167


def test_average_precision_equals_scikit_learn_on_ties():
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(3)
    for _ in range(20):
        truth = rng.random(40) < 0.3
        scores = rng.integers(0, 5, 40).astype(float)
        if truth.any():
            assert math.isclose(average_precision(truth, scores), average_precision_score(truth, scores))


def test_floors_of_the_threshold_free_scores():
    flat = np.full(12, 0.5)
    assert math.isclose(average_precision(TRUTH, flat), 1 / 3)
    assert round(vus_pr(TRUTH, flat, 4), 4) == 0.4366
    assert math.isnan(average_precision(np.zeros(5), flat[:5]))
    assert math.isnan(vus_pr(np.zeros(5), flat[:5], 2))


def test_vus_pr_agrees_with_the_reference_implementation():
    assert math.isclose(vus_pr(TRUTH, SCORES, 0), average_precision(TRUTH, SCORES))
    found = [vus_pr(TRUTH, SCORES, buffer) for buffer in (2, 4, 8)]
    assert np.allclose(found, [0.843350, 0.871900, 0.910989], atol=1e-6)


def test_vus_pr_forgives_lateness_when_the_buffer_is_large():
    late = np.array([0.1, 0.2, 0.05, 0.3, 0.2, 0.1, 0.15, 0.9, 0.8, 0.0, 0.01, 0.02])
    assert [round(vus_pr(TRUTH, late, buffer), 3) for buffer in (0, 4, 8)] == [0.433, 0.592, 0.733]


def test_samples_without_a_score_are_equal_whatever_their_order():
    scores = [math.nan, math.nan, math.nan, math.nan, 1.0]
    # all four come at once, after one false alarm
    assert average_precision([0, 0, 1, 1, 0], scores) == pytest.approx(2 / 5)
    assert average_precision([1, 0, 0, 1, 0], scores) == pytest.approx(2 / 5)


def test_a_volume_does_not_depend_on_what_was_asked_before():
    rng = np.random.default_rng(0)
    truths = [np.arange(40) // 8 == place for place in (1, 3)]
    scores = rng.normal(size=40)
    first = [vus_pr(truth, scores, buffer) for truth in truths for buffer in (4, 8)]
    assert first == [vus_pr(truth.copy(), scores, buffer) for truth in truths for buffer in (4, 8)]
    assert len(set(first)) == 4
