"""Alarms against faults, and scores of single samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from faultset.core.errors import UsageError
from faultset.evaluators.scoring.alarms import (
    average_precision,
    compute_affiliation,
    compute_range_volumes,
    find_runs,
    vus_pr,
)
from faultset.evaluators.scoring.thresholds import HealthyScores, TrainBudget, TrainQuantile, choose_policies

TRUTH = np.array([0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0])


FLAGS = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0])


SCORES = np.array([0.10, 0.20, 0.05, 0.30, 0.90, 0.80, 0.40, 0.70, 0.15, 0.60, 0.01, 0.00])


def test_events_are_half_open_runs():
    assert find_runs(TRUTH) == [(3, 7)]
    assert find_runs(FLAGS) == [(5, 6), (9, 11)]
    assert find_runs([]) == []
    assert find_runs([1, 1]) == [(0, 2)]


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


def test_vus_roc_agrees_with_the_reference_implementation():
    # `RangeAUC_volume_opt` of vus 0.0.6
    volumes = [compute_range_volumes(TRUTH, SCORES, buffer).roc for buffer in (2, 4, 8)]
    assert np.allclose(volumes, [0.894573977942, 0.914296640914, 0.941743957403])


def test_vus_pr_agrees_with_the_reference_implementation():
    assert math.isclose(vus_pr(TRUTH, SCORES, 0), average_precision(TRUTH, SCORES))
    volumes = [vus_pr(TRUTH, SCORES, buffer) for buffer in (2, 4, 8)]
    assert np.allclose(volumes, [0.843350, 0.871900, 0.910989], atol=1e-6)


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


FAULTS = [(5, 12), (40, 44)]


def test_affiliation_agrees_with_the_reference_implementation():
    # `vus.affiliation.metrics.pr_from_events` of vus 0.0.6, which integrates exactly
    precision, recall = compute_affiliation(FAULTS, [(3, 9), (20, 24)], (0, 60))
    assert precision == pytest.approx(0.592308, abs=1e-3)
    assert recall == pytest.approx(0.475275, abs=1e-3)


def test_a_zone_without_an_alarm_lowers_only_the_recall():
    precision, recall = compute_affiliation(FAULTS, [(5, 12)], (0, 60))
    assert (precision, recall) == (1.0, 0.5)


def test_silence_scores_0_and_no_fault_has_no_score():
    assert compute_affiliation(FAULTS, [], (0, 60)).f1 == 0.0
    assert math.isnan(compute_affiliation([], [(1, 2)], (0, 60)).f1)


CALLS = [("web", "cart"), ("cart", "db"), ("web", "pay"), ("mail", "smtp")]


def test_a_train_quantile_lets_its_share_of_healthy_samples_pass():
    training = [
        HealthyScores(scores=np.arange(1.0, 101.0), hours=1.0),
        HealthyScores(scores=np.arange(101.0, 201.0), hours=1.0),
    ]
    threshold = TrainQuantile(share=0.95).threshold(training)
    assert np.mean(np.arange(1.0, 201.0) > threshold) == 0.05
    assert TrainQuantile().name == "train-quantile(0.995)"
    assert math.isnan(TrainQuantile().threshold([]))


def test_a_budget_counts_alarms_and_not_samples():
    # two runs of three samples reach 5, one of them 9
    scores = np.array([0, 5, 5, 5, 0, 0, 5, 9, 5, 0], dtype=float)
    training = [HealthyScores(scores=scores, hours=1.0, consecutive=1)]
    assert TrainBudget(per_hour=2).threshold(training) == 0.0
    assert TrainBudget(per_hour=1).threshold(training) == 5.0
    assert TrainBudget(per_hour=0.5).threshold(training) == 9.0
    lasting = [HealthyScores(scores=scores, hours=1.0, consecutive=2)]
    assert TrainBudget(per_hour=0.5).threshold(lasting) == 5.0
    assert math.isnan(TrainBudget().threshold([]))


def test_policies_are_named_before_the_test_and_reference_is_always_there():
    assert [policy.name for policy in choose_policies([])] == ["reference", "train-quantile(0.995)"]
    assert [policy.name for policy in choose_policies(["reference"])] == ["reference"]
    named = choose_policies(["train-quantile(.9)", "train-budget(2)"])
    assert [policy.name for policy in named] == ["reference", "train-quantile(0.9)", "train-budget(2)"]
    with pytest.raises(UsageError, match="did you mean"):
        choose_policies(["train-quantil"])
    with pytest.raises(UsageError, match="between 0 and 1"):
        choose_policies(["train-quantile(2)"])
